//! Trains a Llama: `cargo run --release --example train_llama -- --help`.

use meshwright::train::Trainer;
use meshwright_examples::llama::Llama;

fn main() -> meshwright::Result<()> {
    Trainer::<Llama>::from_args()?.run()
}

//! Trains a Llama: `cargo run --release --example train_llama -- --help`.

use meshwright::models::Llama;
use meshwright::train::Trainer;

fn main() -> meshwright::Result<()> {
    Trainer::<Llama>::from_args()?.run()
}

//! Trains a GPT-2: `cargo run --release --example train_gpt2 -- --help`.

use meshwright::train::Trainer;
use meshwright_examples::gpt2::Gpt2;

fn main() -> meshwright::Result<()> {
    Trainer::<Gpt2>::from_args()?.run()
}

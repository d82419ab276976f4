//! Trains a GPT-2: `cargo run --release --example train_gpt2 -- --help`.

use meshwright::models::Gpt2;
use meshwright::train::Trainer;

fn main() -> meshwright::Result<()> {
    Trainer::<Gpt2>::from_args()?.run()
}

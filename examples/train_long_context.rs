//! Trains a Llama on long sequences:
//! `cargo run --release --example train_long_context -- --mesh cp=4 --seq 8192 --batch 1 --heads 2 --layers 2`.

use meshwright::train::Trainer;
use meshwright_examples::long_context::LongLlama;

fn main() -> meshwright::Result<()> {
    Trainer::<LongLlama>::from_args()?.run()
}

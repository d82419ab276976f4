//! Trains a Llama with an optimizer of the program's own:
//! `cargo run --release --example train_lion -- --optimizer lion --lr 3e-4`.

use meshwright::models::llama::Llama;
use meshwright::train::{Optimizers, Trainer};
use meshwright_examples::lion::Lion;

fn main() -> meshwright::Result<()> {
    let optimizers = Optimizers::default().with(Lion::entry());
    Trainer::<Llama>::from_args_with(&optimizers)?.run()
}

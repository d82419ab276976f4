//! Trains a Mixtral: `cargo run --release --example train_mixtral -- --help`.

use meshwright::train::Trainer;
use meshwright_examples::mixtral::Mixtral;

fn main() -> meshwright::Result<()> {
    Trainer::<Mixtral>::from_args()?.run()
}

//! Trains a Mixtral: `cargo run --release --example train_mixtral -- --help`.

use meshwright::models::Mixtral;
use meshwright::train::Trainer;

fn main() -> meshwright::Result<()> {
    Trainer::<Mixtral>::from_args()?.run()
}

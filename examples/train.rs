//! Trains a model of any family of the library: `cargo run --release --example train -- --help`.
//!
//! The family is that of the folder of `--init-from`, of the `config.json` of `--architecture`, or of the checkpoint of
//! `--resume`; that of a new model is `--family NAME`.

use meshwright::models::Families;
use meshwright::train::train_family_of;

fn main() -> meshwright::Result<()> {
    train_family_of::<Families>(&Default::default())
}

//! Trains a model of any family of the library: `cargo run --release --example train -- --help`.
//!
//! The family is that of the folder of `--init-from`, of the `config.json` of `--architecture`, or of the checkpoint of
//! `--resume`; that of a new model is `--family NAME`. `--task NAME` trains another task than the next token.

use meshwright::models::Families;
use meshwright::tasks::Tasks;
use meshwright::train::train_task_of;

fn main() -> meshwright::Result<()> {
    train_task_of::<Tasks, Families>(&Default::default())
}

//! A trainer on rows that the program makes: digits that are repeated after a separator.
//! `cargo run --release --example own_data -- --seq 16 --steps 1000 --lr 3e-3 --digits 6`.

use std::error::Error;

use meshwright::data::{Batch, RowSource};
use meshwright::models::llama::Llama;
use meshwright::prelude::*;
use meshwright::train::Optimizers;

/// Flags besides those of the trainer.
#[derive(clap::Args, Debug, Clone)]
pub struct Flags {
    /// Digits of a row before they are repeated
    #[arg(long, value_name = "N", default_value_t = 6)]
    pub digits: usize,
}

/// The token between the digits and their repetition, which also fills the rest of a row.
const SEPARATOR: u32 = 10;

/// Random digits, a separator, and the same digits; only the repetition is learned.
pub struct Repetition {
    /// Digits of a row.
    pub digits: usize,
}

impl RowSource for Repetition {
    fn name(&self) -> &str {
        "repetition"
    }

    fn rows(&self) -> u64 {
        100_000
    }

    fn fingerprint(&self) -> String {
        format!("{} digits", self.digits)
    }

    fn write_row(
        &self,
        row: u64,
        tokens: &mut [u32],
        targets: &mut [u32],
    ) -> std::result::Result<(), Box<dyn Error + Send + Sync>> {
        if tokens.len() < 2 * self.digits {
            return Err(format!("--seq has to be at least {}", 2 * self.digits).into());
        }
        // The finalizer of SplitMix64, which makes random numbers of row and position.
        let digit = |at: usize| {
            let mut bits = (row << 16 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (bits ^ (bits >> 31)) as u32 % 10
        };
        tokens.fill(SEPARATOR);
        targets.fill(Batch::IGNORED);
        for (at, token) in tokens[..self.digits].iter_mut().enumerate() {
            *token = digit(at);
        }
        // The separator predicts the first digit, and each digit the next one.
        targets[self.digits..2 * self.digits].copy_from_slice(&tokens[..self.digits]);
        tokens.copy_within(..self.digits.saturating_sub(1), self.digits + 1);
        Ok(())
    }
}

fn main() -> Result<()> {
    let rows = |flags: &Flags| Ok(Repetition { digits: flags.digits });
    let (trainer, _) = Trainer::<Llama>::from_args_on_rows(&Optimizers::default(), rows)?;
    trainer.run()
}

//! The run of one rank, from building the model to the sampled continuation.

mod batch_check;
mod rank_loop;
mod sample;
mod save;

pub use rank_loop::{RankLoop, Shared};

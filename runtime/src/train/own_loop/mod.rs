//! Parts of the trainer for training loops that a program writes itself.

mod checkpoints;
mod failure;
mod load;
mod loaded_state;
mod reports;

pub use checkpoints::LoopCheckpoints;
pub use loaded_state::LoadedState;
pub use reports::{StepNumbers, StepReports};

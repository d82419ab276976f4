//! The flight recorder: the last calls of each rank, which are written when a run fails, and their comparison.

mod analysis;
mod cause;
mod channel;
mod file;
mod folder;
mod late_rank;
mod recorder;
mod report;
#[cfg(all(test, not(loom)))]
mod tests;

pub use folder::FlightFolder;
pub(crate) use folder::RankEnd;
pub(crate) use recorder::FlightRecorder;
pub use report::{FlightError, FlightReport};

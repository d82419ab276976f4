//! A training step that is simulated on a described cluster: `--simulate`.

mod report;
mod text;
mod trace;

pub use report::{SimulatedRun, WholeRun};
pub use trace::trace_of;

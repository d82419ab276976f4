//! A training step that is simulated on a described cluster: `--simulate`.

mod course;
mod report;
mod text;
mod trace;

pub use course::{KernelTime, TimelineRow, TimelineSegment};
pub use report::{LinkUse, SimulatedRun, WholeRun};
pub use text::{Percent, Scaled, Seconds};
pub use trace::trace_of;

//! Logs of training steps.

mod recorder;
mod run;

pub use recorder::StepRecorder;
pub use run::record_run;

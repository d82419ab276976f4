//! Logs of training steps.

mod recorder;

pub use recorder::StepRecorder;

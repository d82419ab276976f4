//! Logs and times of training steps.

mod measured;
mod recorder;
mod run;
mod timer;

pub use measured::{MeasuredSteps, Measurements, step_record, steps_to_record};
pub use recorder::StepRecorder;
pub use run::record_run;
pub use timer::StepTimer;

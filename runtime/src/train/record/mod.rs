//! Logs and times of training steps.

mod measured;
mod recorder;
mod run;
mod timer;

pub use measured::{MeasuredSteps, Measurements, recorded_steps, step_record};
pub use recorder::StepRecorder;
pub use run::record_run;
pub use timer::StepTimer;

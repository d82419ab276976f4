//! The files to which the metrics of a step are written.

use super::event_files::EventFile;
use super::metrics::{MetricsFile, StepMetrics};
use super::report_file::MetricsError;

/// The open files of `--metrics` and `--tensorboard`, as far as they are given.
#[derive(Debug, Default)]
pub struct MetricsFiles {
    pub lines: Option<MetricsFile>,
    pub events: Option<EventFile>,
}

impl MetricsFiles {
    /// Writes a step to each file that has not failed before, and returns their failures.
    pub fn write_step(&mut self, step: &StepMetrics) -> impl Iterator<Item = MetricsError> {
        let lines = self.lines.as_mut().map(|file| file.write_step(step));
        let events = self.events.as_mut().map(|file| file.write_step(step));
        [lines, events].into_iter().flatten().filter_map(Result::err)
    }
}

//! The files to which the metrics of a step are written.

use super::event_files::EventFile;
use super::metrics::{MetricsFile, StepMetrics};
use super::prometheus::PrometheusFile;
use super::report_file::MetricsError;

/// The open files of `--metrics`, `--tensorboard` and `--prometheus`, as far as they are given.
#[derive(Debug, Default)]
pub struct MetricsFiles {
    pub lines: Option<MetricsFile>,
    pub events: Option<EventFile>,
    pub latest: Option<PrometheusFile>,
}

impl MetricsFiles {
    /// Writes a step to each file that has not failed before, and returns their failures.
    pub fn write_step(&mut self, step: &StepMetrics) -> impl Iterator<Item = MetricsError> {
        let lines = self.lines.as_mut().map(|file| file.write_step(step));
        let events = self.events.as_mut().map(|file| file.write_step(step));
        let latest = self.latest.as_mut().map(|file| file.write_step(step));
        [lines, events, latest].into_iter().flatten().filter_map(Result::err)
    }

    /// Writes what is not written yet, at the end of a run.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn finish(&mut self) -> Result<(), MetricsError> {
        self.latest.as_mut().map_or(Ok(()), PrometheusFile::finish)
    }

    /// Returns the seconds of the steps before this run, if they are known.
    pub fn earlier_seconds(&self) -> Option<f64> {
        self.lines.as_ref()?.earlier_seconds
    }
}

//! The steps of a run, with all metrics that a report shows.

use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::plot::metrics_file::Steps;

/// Metrics that a report shows, besides the parts of others.
pub const METRICS: [&str; 14] = [
    "loss",
    "eval_loss",
    "grad_norm",
    "lr",
    "tokens",
    "tokens_per_s",
    "mfu",
    "goodput",
    "step_ms",
    "time",
    "save_ms",
    "save_bytes",
    "save_failed",
    "skipped",
];

/// The metrics whose parts are shown.
pub const MEMORY: &str = "peak_bytes";
pub const COMMUNICATION: &str = "comm_bytes";

/// A run of a report.
pub struct RunSteps {
    pub name: String,
    /// The folder of its file.
    pub dir: PathBuf,
    steps: Steps,
    metrics: Vec<String>,
}

impl RunSteps {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// A file that is none of metrics, or has no steps.
    pub fn read(path: &Path, name: String) -> Result<RunSteps, Failure> {
        // The names of the parts are in the file.
        let known = Steps::read(path, &[])?.metrics;
        let is_part = |metric: &&String| {
            let (key, _) = metric.split_once('/').unwrap_or_default();
            [MEMORY, COMMUNICATION].contains(&key)
        };
        let parts = known.iter().filter(is_part).cloned();
        let metrics: Vec<String> = METRICS.map(str::to_owned).into_iter().chain(parts).collect();
        let steps = Steps::read(path, &metrics.iter().map(String::as_str).collect::<Vec<_>>())?;
        if steps.len() == 0 {
            return Err(
                format!("{} has no steps, so there is nothing to report", path.display()).into()
            );
        }
        let dir = path.parent().unwrap_or(Path::new("")).to_owned();
        Ok(RunSteps { name, dir, steps, metrics })
    }

    /// Returns the number of steps.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Returns notes on what is left out.
    pub fn notes(&self) -> impl Iterator<Item = &String> {
        self.steps.notes.iter()
    }

    /// Returns the steps that have a metric, with its values: `None` if one is not finite.
    pub fn of(&self, metric: &str) -> Vec<(u64, Option<f64>)> {
        let Some(place) = self.metrics.iter().position(|own| own == metric) else {
            return Vec::new();
        };
        let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
        self.steps.of(place).map(|(step, value)| (step, finite(value))).collect()
    }

    /// Returns the finite values of a metric.
    pub fn values(&self, metric: &str) -> Vec<f64> {
        self.of(metric).into_iter().filter_map(|(_, value)| value).collect()
    }

    /// Returns the names of the parts of a metric.
    pub fn parts<'a>(&'a self, metric: &'a str) -> impl Iterator<Item = &'a str> {
        let part = move |own: &'a String| own.strip_prefix(metric)?.strip_prefix('/');
        self.metrics.iter().filter_map(part)
    }
}

/// Returns the median of some values; `None` without values.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

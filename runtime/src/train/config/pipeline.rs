//! Settings of the pipeline.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::pipeline::StageCut;
use crate::schedule::ScheduleKind;

/// `--schedule` and its settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PipelineConfig {
    /// `--schedule`.
    pub schedule: ScheduleSource,
    /// `--virtual-stages`: stages of each rank; `None` for a schedule from a file, which places its stages itself.
    pub virtual_stages: Option<usize>,
    /// `--stages`.
    #[serde(serialize_with = "as_text")]
    pub stages: StageCut,
}

/// One stage on one rank.
impl Default for PipelineConfig {
    fn default() -> PipelineConfig {
        let schedule = ScheduleSource::Named(ScheduleKind::OneFOneB);
        PipelineConfig { schedule, virtual_stages: Some(1), stages: StageCut::Auto }
    }
}

/// The source of a pipeline schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleSource {
    /// A named schedule, generated for the run's ranks and micro-batches.
    Named(ScheduleKind),
    /// A CSV file in PyTorch's notation.
    File(PathBuf),
}

/// A name, or a file with the extension `csv`.
impl FromStr for ScheduleSource {
    type Err = String;

    fn from_str(text: &str) -> Result<ScheduleSource, String> {
        if Path::new(text).extension().is_some_and(|extension| extension == "csv") {
            return Ok(ScheduleSource::File(PathBuf::from(text)));
        }
        let named = text.parse().map(ScheduleSource::Named);
        named.map_err(|error| format!("{error}, or a file FILE.csv"))
    }
}

impl fmt::Display for ScheduleSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScheduleSource::Named(kind) => kind.fmt(f),
            ScheduleSource::File(path) => path.display().fmt(f),
        }
    }
}

impl Serialize for ScheduleSource {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        as_text(self, to)
    }
}

fn as_text<S: Serializer>(value: &impl fmt::Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

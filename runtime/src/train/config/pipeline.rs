//! Pipeline schedule and the cut into stages.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use crate::layout::AxisId;
use crate::mesh::MeshShape;
use crate::pipeline::{ParseStageCutError, StageCut};
use crate::schedule::ScheduleKind;

use super::values::Values;

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

/// Flags that need a `pp` axis.
const FLAGS: [&str; 3] = ["schedule", "virtual-stages", "stages"];

/// Returns the pipeline settings if the mesh has a `pp` axis; without one, its flags are refused.
pub(super) fn pipeline(values: &mut Values, mesh: &MeshShape) -> Option<PipelineConfig> {
    let is_pipelined = mesh.degree(AxisId::Pp) > 1;
    if !is_pipelined {
        for name in FLAGS.into_iter().filter(|name| values.is_given(name)).collect::<Vec<_>>() {
            if values.fits("mesh") {
                let message = "needs a pp axis, such as --mesh pp=2; add one, or leave it out";
                values.problem(name, message.into());
            }
        }
    }
    let schedule = schedule(values);
    let virtual_stages = values.count("virtual-stages").map(|count| count as usize);
    let stages = stages(values);
    let virtual_stages = match (&schedule, virtual_stages) {
        (ScheduleSource::File(_), Some(_)) => {
            let message = "cannot be combined with a schedule from a file, which places its stages";
            values.problem("virtual-stages", message.into());
            None
        }
        (ScheduleSource::File(_), None) => None,
        (ScheduleSource::Named(kind), given) => {
            let count = given.unwrap_or(kind.default_chunks());
            // The rule does not depend on the other numbers.
            if let Err(error) = kind.generate(1, count, 1)
                && values.fits("virtual-stages")
            {
                values.problem("virtual-stages", error.to_string());
            }
            Some(count)
        }
    };
    is_pipelined.then_some(PipelineConfig { schedule, virtual_stages, stages })
}

/// Returns the file of `--stage-times`, whose name is one that `--stages` takes for a file.
pub(super) fn stage_times(values: &mut Values) -> Option<PathBuf> {
    let path = values.path("stage-times")?;
    if path.extension().is_none_or(|extension| extension != "json") {
        let message = format!(
            "`{}` is not a .json file: --stages reads only files with that extension",
            path.display()
        );
        values.problem("stage-times", message);
    }
    Some(path)
}

/// Returns the schedule: a name, or a file with the extension `csv`.
fn schedule(values: &mut Values) -> ScheduleSource {
    let default = ScheduleSource::Named(ScheduleKind::OneFOneB);
    let Some(text) = values.text("schedule") else { return default };
    if Path::new(&text).extension().is_some_and(|extension| extension == "csv") {
        return ScheduleSource::File(PathBuf::from(text));
    }
    match text.parse() {
        Ok(kind) => ScheduleSource::Named(kind),
        Err(error) => {
            values.problem("schedule", format!("{error}, or a file FILE.csv"));
            default
        }
    }
}

/// Returns the cut into stages.
fn stages(values: &mut Values) -> StageCut {
    let Some(text) = values.text("stages") else { return StageCut::Auto };
    text.parse().unwrap_or_else(|error: ParseStageCutError| {
        if values.fits("stages") {
            values.problem("stages", error.to_string());
        }
        StageCut::Auto
    })
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

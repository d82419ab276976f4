//! The collectives that a training step generates, from a dry run: `--explain`.

mod layer_field;
mod recorder;
mod rows;
mod table;

use std::fmt::Write;
use std::sync::Arc;

use crate::layout::AxisId;

use super::plan::{DryRun, Plan};
use super::{LanguageModel, Result};

use recorder::CallRecorder;
use rows::rows_of;
use table::table_of;

/// Lists the collectives and messages of a training step: on the last rank, which has the largest shards, at each
/// position along `pp`.
///
/// # Errors
/// Of the model or the optimizer, and a failure of the dry run.
pub fn explain_step<M: LanguageModel>(plan: &Plan) -> Result<String> {
    let Plan { config, sizes, pipeline, memory, .. } = plan;
    let run = DryRun { config, sizes, pipeline: pipeline.as_ref() };
    let mesh = &config.mesh;
    let last = mesh.coordinates(mesh.world_size() - 1);
    let mut text = String::new();
    for position in 0..mesh.degree(AxisId::Pp) {
        let recorder = Arc::new(CallRecorder::default());
        let observer = Arc::clone(&recorder);
        run.observe_steps::<M>(position, memory.settings(config), observer, |_| {
            recorder.restart()
        })?;
        let rank = mesh.rank_of(&last.with(AxisId::Pp, position));
        let _ = writeln!(text, "collectives of a step on rank {rank} of {mesh}:");
        text += &table_of(&rows_of(recorder.take_calls()), mesh);
    }
    let _ = writeln!(text, "{}", memory.need_of("memory: each rank"));
    Ok(text)
}

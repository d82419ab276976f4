//! The collectives that a training step generates, from a dry run: `--explain`.

mod calls;
mod layer_field;
mod rows;
mod table;

use std::fmt::Write;

use crate::layout::AxisId;

use super::plan::Plan;
use super::{LanguageModel, Result};

use calls::calls_of;
use rows::rows_of;
use table::table_of;

/// Lists the collectives and messages of a training step: on the last rank, which has the largest shards, at each
/// position along `pp`.
///
/// # Errors
/// Of the model or the optimizer, and a failure of the dry run.
pub fn explain_step<M: LanguageModel>(plan: &Plan) -> Result<String> {
    let Plan { config, memory, .. } = plan;
    let mesh = &config.mesh;
    let last = mesh.coordinates(mesh.world_size() - 1);
    let mut text = String::new();
    for (position, log) in plan.step_logs::<M>()?.iter().enumerate() {
        let rank = mesh.rank_of(&last.with(AxisId::Pp, position));
        let _ = writeln!(text, "collectives of a step on rank {rank} of {mesh}:");
        text += &table_of(&rows_of(calls_of(log)), mesh);
    }
    let _ = writeln!(text, "{}", memory.need_of("memory: each rank"));
    Ok(text)
}

//! A run whose steps are recorded.

use std::sync::Arc;

use crate::comm::launch;
use crate::layout::AxisId;
use crate::tensor::Rank;
use crate::train::plan::Plan;
use crate::train::run::{RankLoop, Shared};
use crate::train::{Error, Result, Task};
use meshwright_sim::StepLog;

use super::StepRecorder;

/// Trains, and returns the logs of the last step at each position along `pp`, on the ranks with the largest shards.
///
/// # Errors
/// As a run.
pub fn record_run<T: Task>(plan: &Plan) -> Result<Vec<StepLog>> {
    let (mesh, shared) = (plan.config.mesh, Shared::default());
    let last = mesh.coordinates(mesh.world_size() - 1);
    let logs = launch(&mesh, |comms| {
        let position = comms.coordinates().along(AxisId::Pp);
        let is_recorded = mesh.rank_of(&last.with(AxisId::Pp, position)) == comms.rank();
        let recorder = Arc::new(StepRecorder::new(mesh));
        let run = RankLoop::<T>::on_rank(plan, &shared, comms, |comms, backend, settings| {
            if is_recorded {
                recorder.observe(comms, backend, settings)
            } else {
                Rank::with_settings(comms, backend, settings)
            }
        })?;
        let log = run.record_steps(&recorder)?;
        Ok(is_recorded.then_some((position, log)))
    });
    let mut logs: Vec<_> = logs.map_err(Error::of_ranks)?.into_iter().flatten().collect();
    logs.sort_by_key(|(position, _)| *position);
    Ok(logs.into_iter().map(|(_, log)| log).collect())
}

//! Checkpoints of a run: every rank writes its own file, the first one completes the folder.

use std::sync::PoisonError;

use crate::checkpoint::{TrainState, Writer};
use crate::comm::Site;
use crate::data::DataPosition;
use crate::tensor::Rank;

use super::plan::Plan;
use super::rank_loop::Shared;
use super::trained::{self, Trained};
use super::{Error, Result};

/// Saves the state after `steps` steps, and removes all but the newest `keep` checkpoints. Every rank calls it.
pub fn save(
    rank: &Rank,
    trained: &Trained<'_>,
    plan: &Plan,
    shared: &Shared,
    steps: u64,
    keep: Option<usize>,
) -> Result<()> {
    let Some(save) = &plan.config.save else { return Ok(()) };
    let refused = || Error::of_flag("--save");
    let (world, site) = (rank.comms().world(), Site::new("--save"));
    let is_first = rank.index() == 0;

    if is_first {
        Writer::begin(&save.dir, steps).map_err(refused())?;
    }
    world.barrier(&site)?;
    let writer = Writer::join(&save.dir, steps);
    let file =
        trained::with_entries(rank, trained, |entries| writer.write_rank(rank.index(), entries))
            .map_err(refused())?;
    let files = || shared.rank_files.lock().unwrap_or_else(PoisonError::into_inner);
    files().push(file);
    world.barrier(&site)?;
    if is_first {
        let mut files = std::mem::take(&mut *files());
        files.sort_by(|a, b| a.name.cmp(&b.name));
        writer.commit(files, state(plan, steps), keep).map_err(refused())?;
    }
    Ok(world.barrier(&site)?)
}

/// The state of the run besides its tensors.
fn state(plan: &Plan, steps: u64) -> TrainState {
    let config = &plan.config;
    TrainState {
        step: steps,
        seed: config.seed,
        mesh: config.mesh.to_string(),
        data: DataPosition::after(steps, &plan.dataset),
        config: serde_json::to_value(config).unwrap_or_default(),
    }
}

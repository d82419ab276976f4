//! Checkpoints of a run: every rank writes its own file, and rank 0 completes the folder.

use std::path::Path;

use crate::checkpoint::{CheckpointWriter, RankFile, TrainState};
use crate::comm::{CommError, Communicator, Site};
use crate::data::DataPosition;
use crate::mesh::AxisOrder;
use crate::state_dict::{TrainingState, with_shard_entries};
use crate::tensor::Rank;

use crate::train::plan::{Plan, settings_to_save};
use crate::train::{Error, Result};

/// Returns the site of collectives for checkpoints.
pub(super) fn site() -> Site {
    Site::new("--save")
}

/// Saves a checkpoint after `steps` steps, with the `state` besides tensors, in the folder `dir`, and removes all but the newest
/// `keep`. Every rank calls it.
pub(super) fn save_to_folder(
    rank: &Rank,
    training_state: &TrainingState<'_>,
    dir: &Path,
    (steps, state): (u64, &dyn Fn() -> TrainState),
    keep: Option<usize>,
) -> Result<()> {
    // Ranks wait for the files of the others, and for those that rank 0 writes at the end and removes.
    let _waits_for_files = rank.comms().extend_time_limit();
    let refused = || Error::of_flag("--save");
    let (world, site) = (rank.comms().world(), site());

    let writer = begin_checkpoint(rank, dir, steps)?;
    let file = with_shard_entries(rank, training_state, |entries| {
        writer.write_rank(rank.index(), entries)
    })
    .map_err(refused())?;
    let mut files = gather_rank_files(&world, &site, &file)?;
    if rank.index() == 0 {
        files.sort_by(|a, b| a.name.cmp(&b.name));
        writer.commit(files, state(), keep).map_err(refused())?;
    }
    Ok(world.barrier(&site)?)
}

/// Begins a checkpoint after `steps` steps in the folder `dir`. Every rank calls it, after its last update.
pub(super) fn begin_checkpoint(rank: &Rank, dir: &Path, steps: u64) -> Result<CheckpointWriter> {
    rank.compare_last_updates();
    if rank.index() == 0 {
        CheckpointWriter::begin_checkpoint(dir, steps).map_err(Error::of_flag("--save"))?;
    }
    rank.comms().world().barrier(&site())?;
    Ok(CheckpointWriter::join(dir, steps))
}

/// Gathers the file descriptions of all ranks.
fn gather_rank_files(
    world: &Communicator,
    site: &Site,
    own: &RankFile,
) -> std::result::Result<Vec<RankFile>, CommError> {
    let text = serde_json::to_string(own).expect("names and numbers are JSON");
    let texts = world.all_gather_texts(site, &text)?;
    let file_of = |text: &String| serde_json::from_str(text).expect("ranks send valid JSON");
    Ok(texts.iter().map(file_of).collect())
}

/// Returns the state of the run besides its tensors.
pub(super) fn train_state(plan: &Plan, steps: u64) -> TrainState {
    let config = &plan.config;
    let order = *config.mesh.order();
    TrainState {
        step: steps,
        seed: config.seed,
        mesh: config.mesh.to_string(),
        mesh_order: (order != AxisOrder::DEFAULT).then(|| order.to_string()),
        data: DataPosition::after(steps, &plan.dataset),
        history: plan.history.clone(),
        config: settings_to_save(config, &plan.architecture),
    }
}

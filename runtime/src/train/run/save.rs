//! Checkpoints of a run: every rank writes its own file, and rank 0 completes the folder.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::checkpoint::{CheckpointError, CheckpointWriter, Keep, RankFile, TrainState};
use crate::comm::Site;
use crate::data::DataPosition;
use crate::mesh::AxisOrder;
use crate::os::exit_code::code_of_error;
use crate::tensor::Rank;
use meshwright_store::__internal::with_shard_entries;

use crate::state_dict::TrainingState;
use crate::train::plan::{Plan, settings_to_save};
use crate::train::{Error, Result};

/// Saves a checkpoint after `steps` steps, with the `state` besides tensors, in the folder `dir` that `flag` names, and
/// removes those that are not to be kept. Returns the bytes of its files. Every rank calls it.
///
/// # Errors
/// As [`agree`].
pub fn save_to_folder(
    rank: &Rank,
    training_state: &TrainingState<'_>,
    (flag, dir): (&'static str, &Path),
    (steps, state): (u64, &dyn Fn() -> TrainState),
    keep: Keep,
) -> Result<u64> {
    // Ranks wait for the files of the others, and for those that rank 0 writes at the end and removes.
    let _waits_for_files = rank.comms().extend_time_limit();
    let writer = begin_checkpoint(rank, (flag, dir), steps)?;
    let written = with_shard_entries(rank, training_state, |entries| {
        writer.write_rank(rank.index(), entries)
    });
    let mut files = agree(rank, (flag, steps), written)?;
    let bytes = bytes_of(&files);
    let completed = if rank.index() == 0 {
        files.sort_by(|a, b| a.name.cmp(&b.name));
        writer.commit(files, state(), keep).map(drop)
    } else {
        Ok(())
    };
    agree(rank, (flag, steps), completed)?;
    Ok(bytes)
}

/// Returns the bytes of the files of all ranks.
pub(super) fn bytes_of(files: &[RankFile]) -> u64 {
    files.iter().map(|file| file.bytes).sum()
}

/// Begins a checkpoint after `steps` steps in the folder `dir`. Every rank calls it, after its last update.
///
/// # Errors
/// As [`agree`], and ranks that save another number of steps.
pub(super) fn begin_checkpoint(
    rank: &Rank,
    (flag, dir): (&'static str, &Path),
    steps: u64,
) -> Result<CheckpointWriter> {
    rank.compare_last_updates();
    let begun = match rank.index() {
        0 => CheckpointWriter::begin_checkpoint(dir, steps).map(|writer| writer.token().to_owned()),
        _ => Ok(String::new()),
    };
    let all = agree(rank, (flag, steps), begun.map(|token| (steps, token)))?;
    if let Some(other) = all.iter().position(|own| own.0 != all[0].0) {
        return Err(Error::Input(format!(
            "{flag}: rank 0 saves the state after step {}, and rank {other} that after step {}; all ranks have to save \
             the same step",
            all[0].0, all[other].0
        )));
    }
    Ok(CheckpointWriter::join(dir, steps, &all[0].1))
}

/// Exchanges the results of a part of the checkpoint of `flag` after `steps` steps. Every rank calls it when its part
/// is done or has failed, and returns the values in the order of ranks.
///
/// # Errors
/// [`Error::Save`] with the first failure on all ranks, if the system has refused a part. Other errors are of this
/// rank.
pub(super) fn agree<T: Serialize + DeserializeOwned>(
    rank: &Rank,
    (flag, steps): (&'static str, u64),
    own: std::result::Result<T, CheckpointError>,
) -> Result<Vec<T>> {
    let own = match own {
        Ok(value) => Ok(value),
        Err(error) if error.is_of_system() => Err((error.to_string(), code_of_error(&error))),
        Err(error) => return Err(Error::of_flag(flag)(error)),
    };
    let values = exchange_results(rank, flag, &own)?;
    values.map_err(|(message, code)| Error::Save { flag, steps, message, code })
}

/// Exchanges a result of each rank. Returns the values in the order of ranks, or the first error with its exit code.
/// Every rank calls it.
///
/// # Errors
/// Of the communication.
pub fn exchange_results<T: Serialize + DeserializeOwned>(
    rank: &Rank,
    flag: &'static str,
    own: &std::result::Result<T, (String, u8)>,
) -> Result<std::result::Result<Vec<T>, (String, u8)>> {
    let text = serde_json::to_string(own).expect("names and numbers are JSON");
    let texts = rank.comms().world().all_gather_texts(&Site::new(flag), &text)?;
    let result_of = |text: &String| -> std::result::Result<T, (String, u8)> {
        serde_json::from_str(text).expect("ranks send valid JSON")
    };
    Ok(texts.iter().map(result_of).collect())
}

/// Returns the state of the run besides its tensors.
pub(super) fn train_state(plan: &Plan, steps: u64) -> TrainState {
    let config = &plan.config;
    let order = *config.mesh.order();
    let position = DataPosition::after(steps, &plan.dataset);
    TrainState {
        step: steps,
        seed: config.seed,
        mesh: config.mesh.to_string(),
        mesh_order: (order != AxisOrder::DEFAULT).then(|| order.to_string()),
        data: Some(position.expect("the data were hashed before the run")),
        history: plan.history.clone(),
        evaluation: None,
        skipped: 0,
        config: settings_to_save(config, &plan.architecture),
        own_loop: None,
    }
}

//! Writing checkpoints.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::place::storage_of;
use super::storage::CheckpointAttempt;
use super::tensors::{TensorWriter, WrittenTensors};
use super::{
    CheckpointError, Manifest, RankFile, RunHistory, SavedShard, StoredDtype, TensorBox,
    TrainState, folder, names,
};

/// A shard that one rank saves: a box of a global tensor.
#[derive(Debug, Clone)]
pub struct ShardEntry<'a> {
    /// Name of the tensor, the same on all ranks; `params.blocks.0.mlp.up.weight`, for example.
    pub name: String,
    /// Shape of the whole tensor.
    pub global_shape: Vec<usize>,
    /// Box of `data` in the global tensor.
    pub tensor_box: TensorBox,
    /// The elements of the box, row by row.
    pub data: &'a [f32],
}

/// The checkpoints of a run that stay when a new one is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keep {
    /// The newest ones, at least one, besides the one that `best` links to; `None` for all.
    pub newest: Option<usize>,
    /// True if the new one has the lowest validation loss so far: `best` becomes a link to it. The one before is
    /// removed if it was saved for [its loss only](super::EvaluationRecord::is_only_best).
    pub is_best: bool,
}

/// Saves one checkpoint.
///
/// One rank calls [`begin_checkpoint`](Self::begin_checkpoint), and the others [`join`](Self::join) after it has
/// returned. Then every rank calls [`write_rank`](Self::write_rank), in parallel, and finally one rank calls
/// [`commit`](Self::commit).
///
/// Every element must be saved by exactly one rank: of replicated tensors, one rank saves all.
#[derive(Debug, Clone)]
pub struct CheckpointWriter {
    attempt: CheckpointAttempt,
}

impl CheckpointWriter {
    /// Begins the checkpoint after `step` steps in the folder `dir`, which a
    /// [`CheckpointFolder`](super::CheckpointFolder) has made. Completes or removes what a failure has left there, so
    /// no other run may save in it: the same excludes them.
    ///
    /// # Errors
    /// A folder that is missing, or cannot be written to.
    pub fn begin_checkpoint(dir: &Path, step: u64) -> Result<CheckpointWriter, CheckpointError> {
        let attempt = storage_of(dir)?.begin(dir, step)?;
        Ok(CheckpointWriter { attempt })
    }

    /// Removes what a failed checkpoint has left in the folder `dir`, ignoring errors. No rank may write to it.
    pub fn abandon(dir: &Path) {
        folder::abandon(dir);
    }

    /// Returns a text that distinguishes this attempt to save the step from others, for [`join`](Self::join).
    pub fn token(&self) -> &str {
        &self.attempt.token
    }

    /// Creates a writer for the checkpoint that another rank has begun, with its [`token`](Self::token).
    pub fn join(dir: &Path, step: u64, token: &str) -> CheckpointWriter {
        let attempt = CheckpointAttempt { dir: dir.to_owned(), step, token: token.to_owned() };
        CheckpointWriter { attempt }
    }

    /// Writes and syncs the file of one rank.
    ///
    /// # Errors
    /// A file that cannot be written.
    ///
    /// # Panics
    /// If an entry's data has another length than its box: a fault of the calling code.
    pub fn write_rank(
        &self,
        rank: usize,
        entries: &[ShardEntry<'_>],
    ) -> Result<RankFile, CheckpointError> {
        self.write_cancellable(rank, entries, &|| false)
    }

    fn write_cancellable(
        &self,
        rank: usize,
        entries: &[ShardEntry<'_>],
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<RankFile, CheckpointError> {
        let storage = storage_of(&self.attempt.dir)?;
        let shards = describe_shards(entries);
        let tensors = shards.iter().map(|shard| (shard.key.as_str(), &shard.tensor_box.shape[..]));
        let elements: usize = entries.iter().map(|entry| entry.data.len()).sum();
        let part_bytes = storage.part_bytes(shards.len(), (elements * size_of::<f32>()) as u64);
        let (file, path, name) = storage.create_file(&self.attempt, rank)?;
        let mut writer =
            TensorWriter::begin(file, &path, StoredDtype::F32, None, tensors, part_bytes)?;
        for (shard, entry) in shards.iter().zip(entries) {
            writer.write(&shard.key, entry.data)?;
        }
        let WrittenTensors { file, bytes, xxh3, parts } = writer.finish_unsynced()?;
        storage.store_file(&self.attempt, &name, (&file, bytes), is_cancelled)?;
        Ok(RankFile { name, bytes, xxh3, parts, shards })
    }

    /// Writes the file of one rank like [`write_rank`](Self::write_rank), and describes it to the rank that
    /// [waits](Self::wait_for_ranks) for all of them. Fails once `is_cancelled` returns true, where writing takes long.
    #[doc(hidden)]
    pub fn write_described_rank(
        &self,
        rank: usize,
        entries: &[ShardEntry<'_>],
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<(), CheckpointError> {
        let file = self.write_cancellable(rank, entries, is_cancelled)?;
        let description = serde_json::to_vec(&file).expect("names and numbers are JSON");
        storage_of(&self.attempt.dir)?.describe_file(&self.attempt, rank, &description)
    }

    /// Waits until all ranks have [written](Self::write_described_rank) their files, and returns these; `None` once
    /// `is_cancelled` returns true.
    #[doc(hidden)]
    pub fn wait_for_ranks(
        &self,
        ranks: usize,
        is_cancelled: impl Fn() -> bool,
    ) -> Result<Option<Vec<RankFile>>, CheckpointError> {
        let storage = storage_of(&self.attempt.dir)?;
        let mut found = Vec::with_capacity(ranks);
        for rank in 0..ranks {
            let description = storage.wait_for_description(&self.attempt, rank, &is_cancelled)?;
            let Some(description) = description else { return Ok(None) };
            let file = serde_json::from_slice(&description).map_err(|error| {
                let path = self.attempt.dir.join(names::rank_file(rank)).with_extension("json");
                CheckpointError::damaged(&path, error.to_string())
            })?;
            found.push(file);
        }
        Ok(Some(found))
    }

    /// Completes the checkpoint with the files of all ranks: writes the manifest, renames the folder, moves `latest`,
    /// and removes what is not to be [kept](Keep) of its history. Returns the folder.
    ///
    /// # Errors
    /// A file that cannot be written, and shards that do not cover their tensors exactly.
    ///
    /// # Panics
    /// If `state` is of another step: a fault of the calling code.
    pub fn commit(
        self,
        rank_files: Vec<RankFile>,
        state: TrainState,
        keep: Keep,
    ) -> Result<PathBuf, CheckpointError> {
        let CheckpointAttempt { dir, step, .. } = &self.attempt;
        assert_eq!(state.step, *step, "the step of a checkpoint");
        let (storage, history) = (storage_of(dir)?, state.history.clone());
        let (manifest, hash) = Manifest::new(state, rank_files)?.to_text(dir)?;
        let folder = storage.complete(&self.attempt, (&manifest, &hash))?;
        let before = storage.linked_step(dir, names::BEST)?.filter(|_| keep.is_best);
        if keep.is_best {
            storage.link(dir, names::BEST, *step)?;
        }
        let is_superseded = |step: u64| {
            before == Some(step) && Manifest::is_only_best(&dir.join(names::folder_name(step)))
        };
        if keep.newest.is_some() || before.is_some_and(is_superseded) {
            remove_old_checkpoints(dir, (*step, &history), keep.newest, is_superseded)?;
        }
        Ok(folder)
    }
}

/// Describes the shards of a file, with keys that differ.
fn describe_shards(entries: &[ShardEntry<'_>]) -> Vec<SavedShard> {
    let mut uses: HashMap<&str, usize> = HashMap::new();
    let shard = |entry: &ShardEntry<'_>, key: String| {
        assert_eq!(entry.tensor_box.len(), entry.data.len(), "elements of `{}`", entry.name);
        let (tensor, global_shape) = (entry.name.clone(), entry.global_shape.clone());
        SavedShard { tensor, key, global_shape, tensor_box: entry.tensor_box.clone() }
    };
    let mut shards = Vec::new();
    for entry in entries {
        // A rank may save several boxes of one tensor, but the keys of a file must differ.
        let n_uses = uses.entry(&entry.name).or_default();
        let key = match *n_uses {
            0 => entry.name.clone(),
            n => format!("{}#{n}", entry.name),
        };
        *n_uses += 1;
        shards.push(shard(entry, key));
    }
    shards
}

/// Removes all but the `newest` checkpoints of `history` up to `step`, and those that are superseded; not the one that
/// `best` links to. Checkpoints of other runs and branches are neither counted nor removed.
fn remove_old_checkpoints(
    dir: &Path,
    (step, history): (u64, &RunHistory),
    newest: Option<usize>,
    is_superseded: impl Fn(u64) -> bool,
) -> Result<(), CheckpointError> {
    let storage = storage_of(dir)?;
    let best = storage.linked_step(dir, names::BEST)?;
    let steps = folder::steps_in(dir)?.into_iter().rev();
    let own = steps.filter(|own| *own <= step && folder::is_of_history(dir, *own, history));
    let (superseded, own): (Vec<u64>, Vec<u64>) =
        own.filter(|own| best != Some(*own)).partition(|own| is_superseded(*own));
    let surplus = own.into_iter().skip(newest.map_or(usize::MAX, |newest| newest.max(1)));
    for step in superseded.into_iter().chain(surplus) {
        storage.remove(dir, step)?;
    }
    Ok(())
}

//! Writing checkpoints.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::rank_files::{describe_rank_file, wait_for_rank_files};
use super::tensors::TensorWriter;
use super::{
    CheckpointError, Manifest, RankFile, RunHistory, SavedShard, StoredDtype, TensorBox,
    TrainState, files, folder, names,
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
    dir: PathBuf,
    step: u64,
    temporary: PathBuf,
}

impl CheckpointWriter {
    /// Begins the checkpoint after `step` steps in the folder `dir`, creating it if needed. Completes or removes what a
    /// failure has left there, so no other run may save in it: a [`CheckpointFolder`](super::CheckpointFolder) excludes
    /// them.
    ///
    /// # Errors
    /// A folder that cannot be created or written to.
    pub fn begin_checkpoint(dir: &Path, step: u64) -> Result<CheckpointWriter, CheckpointError> {
        files::create_folder(dir)?;
        folder::recover(dir)?;
        let writer = CheckpointWriter::join(dir, step);
        files::create_folder(&writer.temporary)?;
        Ok(writer)
    }

    /// Removes what a failed checkpoint has left in the folder `dir`, ignoring errors. No rank may write to it.
    pub fn abandon(dir: &Path) {
        folder::abandon(dir);
    }

    /// Creates a writer for the checkpoint that another rank has begun.
    pub fn join(dir: &Path, step: u64) -> CheckpointWriter {
        let temporary = names::temporary_folder(dir, step);
        CheckpointWriter { dir: dir.to_owned(), step, temporary }
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
        let name = names::rank_file(rank);
        let shards = describe_shards(entries);
        let tensors = shards.iter().map(|shard| (shard.key.as_str(), &shard.tensor_box.shape[..]));
        let path = self.temporary.join(&name);
        let mut writer = TensorWriter::create(&path, StoredDtype::F32, None, tensors)?;
        for (shard, entry) in shards.iter().zip(entries) {
            writer.write(&shard.key, entry.data)?;
        }
        let (bytes, xxh3) = writer.finish()?;
        Ok(RankFile { name, bytes, xxh3, shards })
    }

    /// Writes the file of one rank like [`write_rank`](Self::write_rank), and describes it to the rank that
    /// [waits](Self::wait_for_ranks) for all of them.
    #[doc(hidden)]
    pub fn write_described_rank(
        &self,
        rank: usize,
        entries: &[ShardEntry<'_>],
    ) -> Result<(), CheckpointError> {
        let file = self.write_rank(rank, entries)?;
        describe_rank_file(&self.temporary, rank, &file)
    }

    /// Waits until all ranks have [written](Self::write_described_rank) their files, and returns these; `None` once
    /// `is_cancelled` returns true.
    #[doc(hidden)]
    pub fn wait_for_ranks(
        &self,
        ranks: usize,
        is_cancelled: impl Fn() -> bool,
    ) -> Result<Option<Vec<RankFile>>, CheckpointError> {
        wait_for_rank_files(&self.temporary, ranks, is_cancelled)
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
        assert_eq!(state.step, self.step, "the step of a checkpoint");
        let history = state.history.clone();
        Manifest::new(state, rank_files)?.write(&self.temporary)?;
        files::sync_folder(&self.temporary)?;

        let name = names::folder_name(self.step);
        let folder = self.dir.join(&name);
        // A run that resumed before this step saves it a second time.
        let replaced = names::replaced_path(&self.dir, self.step);
        if files::is_taken(&folder) {
            files::rename_path(&folder, &replaced)?;
        }
        files::rename_path(&self.temporary, &folder)?;
        point_link(&self.dir, names::LATEST, &name)?;
        if files::is_taken(&replaced) {
            folder::remove_checkpoint(&replaced, &self.temporary)?;
        }
        let before = best_step(&self.dir).filter(|_| keep.is_best);
        if keep.is_best {
            point_link(&self.dir, names::BEST, &name)?;
        }
        let is_superseded = |step: u64| {
            before == Some(step) && Manifest::is_only_best(&self.dir.join(names::folder_name(step)))
        };
        if keep.newest.is_some() || before.is_some_and(is_superseded) {
            remove_old_checkpoints(&self.dir, (self.step, &history), keep.newest, is_superseded)?;
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

/// Replaces `link` atomically, so that there always is one.
fn point_link(dir: &Path, link: &str, name: &str) -> Result<(), CheckpointError> {
    let new_link = names::temporary_link(dir, link);
    files::remove_path(&new_link)?;
    files::create_link(name, &new_link)?;
    files::rename_path(&new_link, &dir.join(link))
}

/// Returns the step of the checkpoint that `best` links to.
fn best_step(dir: &Path) -> Option<u64> {
    names::step_of_path(&std::fs::read_link(dir.join(names::BEST)).ok()?)
}

/// Removes all but the `newest` checkpoints of `history` up to `step`, and those that are superseded; not the one that
/// `best` links to. Checkpoints of other runs and branches are neither counted nor removed.
fn remove_old_checkpoints(
    dir: &Path,
    (step, history): (u64, &RunHistory),
    newest: Option<usize>,
    is_superseded: impl Fn(u64) -> bool,
) -> Result<(), CheckpointError> {
    let best = best_step(dir);
    let steps = folder::steps_in(dir)?.into_iter().rev();
    let own = steps.filter(|own| *own <= step && folder::is_of_history(dir, *own, history));
    let (superseded, own): (Vec<u64>, Vec<u64>) =
        own.filter(|own| best != Some(*own)).partition(|own| is_superseded(*own));
    let surplus = own.into_iter().skip(newest.map_or(usize::MAX, |newest| newest.max(1)));
    for step in superseded.into_iter().chain(surplus) {
        let old = dir.join(names::folder_name(step));
        folder::remove_checkpoint(&old, &names::temporary_folder(dir, step))?;
    }
    Ok(())
}

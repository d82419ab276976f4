//! Writing checkpoints.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::tensors::TensorWriter;
use super::{CheckpointError, Manifest, RankFile, SavedShard, TensorBox, TrainState, files};

/// Prefix of the names of incomplete folders.
const TEMPORARY: &str = ".tmp-";

/// The name of the link to the newest checkpoint.
pub(super) const LATEST: &str = "latest";

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
    /// Checks that `dir` can hold checkpoints, creating it if needed, and removes incomplete ones after a crash. Called at the
    /// start of a run, so that a bad folder is reported before any work could be lost.
    ///
    /// # Errors
    /// A folder that cannot be created or written to.
    pub fn prepare(dir: &Path) -> Result<(), CheckpointError> {
        files::create_folder(dir)?;
        for name in files::file_names(dir)?.iter().filter(|name| name.starts_with(TEMPORARY)) {
            files::remove_path(&dir.join(name))?;
        }
        let probe = dir.join(format!("{TEMPORARY}probe"));
        files::write(&probe, b"")?;
        files::remove_path(&probe)
    }

    /// Removes incomplete checkpoints of a failed run from `dir`, ignoring errors.
    pub fn abandon(dir: &Path) {
        let unfinished = files::file_names(dir).unwrap_or_default();
        for name in unfinished.iter().filter(|name| name.starts_with(TEMPORARY)) {
            // The user has to see the failure of the run instead; the next run retries.
            let _ = files::remove_path(&dir.join(name));
        }
    }

    /// Begins the checkpoint after `step` steps in the folder `dir`.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare), which it repeats.
    pub fn begin_checkpoint(dir: &Path, step: u64) -> Result<CheckpointWriter, CheckpointError> {
        CheckpointWriter::prepare(dir)?;
        let writer = CheckpointWriter::join(dir, step);
        files::create_folder(&writer.temporary)?;
        Ok(writer)
    }

    /// Creates a writer for the checkpoint that another rank has begun.
    pub fn join(dir: &Path, step: u64) -> CheckpointWriter {
        let temporary = dir.join(format!("{TEMPORARY}{}", folder_name(step)));
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
        let name = format!("rank-{rank:05}.safetensors");
        let shards = describe_shards(entries);
        let tensors = shards.iter().map(|shard| (shard.key.as_str(), &shard.tensor_box.shape[..]));
        let mut writer = TensorWriter::create(&self.temporary.join(&name), tensors)?;
        for (shard, entry) in shards.iter().zip(entries) {
            writer.write(&shard.key, entry.data)?;
        }
        let (bytes, xxh3) = writer.finish()?;
        Ok(RankFile { name, bytes, xxh3, shards })
    }

    /// Completes the checkpoint with the files of all ranks: writes the manifest, renames the folder, moves `latest`, and with
    /// `keep` removes all but the newest `keep` up to this one. Returns the folder.
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
        keep: Option<usize>,
    ) -> Result<PathBuf, CheckpointError> {
        assert_eq!(state.step, self.step, "the step of a checkpoint");
        Manifest::new(state, rank_files)?.write(&self.temporary)?;
        files::sync_folder(&self.temporary)?;

        let name = folder_name(self.step);
        let folder = self.dir.join(&name);
        // A run that resumed before this step saves it a second time.
        let replaced = self.dir.join(format!("{TEMPORARY}replaced-{name}"));
        if folder.exists() {
            files::rename_path(&folder, &replaced)?;
        }
        if let Err(error) = files::rename_path(&self.temporary, &folder) {
            // Under its temporary name, the replaced checkpoint would be removed as an incomplete one.
            if replaced.exists() {
                files::rename_path(&replaced, &folder)?;
            }
            return Err(error);
        }
        point_latest(&self.dir, &name)?;
        files::remove_path(&replaced)?;
        if let Some(keep) = keep {
            remove_old_checkpoints(&self.dir, self.step, keep)?;
        }
        Ok(folder)
    }
}

/// Returns the folder name of the checkpoint after `step` steps.
pub(super) fn folder_name(step: u64) -> String {
    format!("step-{step:08}")
}

/// Returns the step of a checkpoint's folder name; `None` for another name.
pub(super) fn step_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("step-")?;
    digits.parse().ok().filter(|step| folder_name(*step) == name)
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

/// Replaces the link atomically, so that there always is one.
fn point_latest(dir: &Path, name: &str) -> Result<(), CheckpointError> {
    let (link, new_link) = (dir.join(LATEST), dir.join(format!("{TEMPORARY}{LATEST}")));
    files::remove_path(&new_link)?;
    std::os::unix::fs::symlink(name, &new_link)
        .map_err(CheckpointError::io_error("create", &new_link))?;
    files::rename_path(&new_link, &link)
}

/// Removes all but the newest `keep` checkpoints up to `step`. Later ones, from before a resume, are kept.
fn remove_old_checkpoints(dir: &Path, step: u64, keep: usize) -> Result<(), CheckpointError> {
    let mut steps: Vec<(u64, String)> = files::file_names(dir)?
        .into_iter()
        .filter_map(|name| Some((step_of(&name)?, name)))
        .filter(|(other, _)| *other <= step)
        .collect();
    steps.sort();
    steps.reverse();
    for (_, name) in steps.iter().skip(keep.max(1)) {
        files::remove_path(&dir.join(name))?;
    }
    Ok(())
}

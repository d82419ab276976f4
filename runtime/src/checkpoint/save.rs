//! Writing checkpoints.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::tensors::TensorWriter;
use super::{CheckpointError, Manifest, RankFile, Region, Shard, TrainState, files};

/// What begins the names of folders that are not complete.
const TEMPORARY: &str = ".tmp-";

/// The name of the link to the newest checkpoint.
pub(super) const LATEST: &str = "latest";

/// A box of a tensor that one rank saves.
#[derive(Debug, Clone)]
pub struct ShardEntry<'a> {
    /// Name of the tensor, the same on all ranks; `params.blocks.0.mlp.up.weight`, for example.
    pub name: String,
    /// Shape of the whole tensor.
    pub global_shape: Vec<usize>,
    /// The part of it that `data` holds.
    pub region: Region,
    /// The elements of the part, row after row.
    pub data: &'a [f32],
}

/// Saves one checkpoint.
///
/// One caller calls [`Writer::begin`]; then every rank calls [`Writer::write_rank`], in parallel; when all are done,
/// one caller calls [`Writer::commit`]. In several processes, the others make theirs with [`Writer::join`] after
/// `begin` has returned.
///
/// Every element must be saved by exactly one rank: of replicated tensors, one rank saves all.
#[derive(Debug, Clone)]
pub struct Writer {
    dir: PathBuf,
    step: u64,
    temporary: PathBuf,
}

impl Writer {
    /// Makes sure that `dir` can hold checkpoints, and removes what a crash left unfinished in it. Called at the
    /// start of a run, it tells of a bad folder before any work is lost.
    ///
    /// # Errors
    /// When the folder cannot be created or written to.
    pub fn prepare(dir: &Path) -> Result<(), CheckpointError> {
        files::create_folder(dir)?;
        for name in files::names(dir)?.iter().filter(|name| name.starts_with(TEMPORARY)) {
            files::remove(&dir.join(name))?;
        }
        let probe = dir.join(format!("{TEMPORARY}probe"));
        files::write(&probe, b"")?;
        files::remove(&probe)
    }

    /// Removes what a run that failed has left unfinished in `dir`, as far as that is possible.
    pub fn abandon(dir: &Path) {
        let unfinished = files::names(dir).unwrap_or_default();
        for name in unfinished.iter().filter(|name| name.starts_with(TEMPORARY)) {
            // The failure that led here is what the user has to know; the next run tries again.
            let _ = files::remove(&dir.join(name));
        }
    }

    /// Begins the checkpoint after `step` steps in the folder `dir`.
    ///
    /// # Errors
    /// As [`Writer::prepare`], which it repeats.
    pub fn begin(dir: &Path, step: u64) -> Result<Writer, CheckpointError> {
        Writer::prepare(dir)?;
        let writer = Writer::join(dir, step);
        files::create_folder(&writer.temporary)?;
        Ok(writer)
    }

    /// A writer for the checkpoint that another process has begun.
    pub fn join(dir: &Path, step: u64) -> Writer {
        let temporary = dir.join(format!("{TEMPORARY}{}", folder_name(step)));
        Writer { dir: dir.to_owned(), step, temporary }
    }

    /// Writes the file of one rank and brings it to the disk.
    ///
    /// # Errors
    /// When the file cannot be written.
    ///
    /// # Panics
    /// When an entry's data has another length than its region: a fault of the calling code.
    pub fn write_rank(
        &self,
        rank: usize,
        entries: &[ShardEntry<'_>],
    ) -> Result<RankFile, CheckpointError> {
        let name = format!("rank-{rank:05}.safetensors");
        let shards = shards(entries);
        let tensors = shards.iter().map(|shard| (shard.key.as_str(), &shard.region.shape[..]));
        let mut writer = TensorWriter::create(&self.temporary.join(&name), tensors)?;
        for (shard, entry) in shards.iter().zip(entries) {
            writer.write(&shard.key, entry.data)?;
        }
        let (bytes, xxh3) = writer.finish()?;
        Ok(RankFile { name, bytes, xxh3, shards })
    }

    /// Completes the checkpoint with the files of all ranks: writes the manifest, gives the folder its name, moves
    /// `latest`, and with `keep` removes all but the newest `keep` up to this one. Gives the folder.
    ///
    /// # Errors
    /// When something cannot be written, or the shards do not make up their tensors.
    ///
    /// # Panics
    /// When `state` is of another step: a fault of the calling code.
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
        // A run that was resumed from before this step saves it again.
        let replaced = self.dir.join(format!("{TEMPORARY}replaced-{name}"));
        if folder.exists() {
            files::rename(&folder, &replaced)?;
        }
        if let Err(error) = files::rename(&self.temporary, &folder) {
            // Without its name, the replaced one would be taken for what a crash left unfinished.
            if replaced.exists() {
                files::rename(&replaced, &folder)?;
            }
            return Err(error);
        }
        point_latest(&self.dir, &name)?;
        files::remove(&replaced)?;
        if let Some(keep) = keep {
            remove_old(&self.dir, self.step, keep)?;
        }
        Ok(folder)
    }
}

/// The folder of the checkpoint after `step` steps.
pub(super) fn folder_name(step: u64) -> String {
    format!("step-{step:08}")
}

/// The step of a checkpoint's folder; `None` for another name.
pub(super) fn step_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("step-")?;
    digits.parse().ok().filter(|step| folder_name(*step) == name)
}

fn shards(entries: &[ShardEntry<'_>]) -> Vec<Shard> {
    let mut uses: HashMap<&str, usize> = HashMap::new();
    let shard = |entry: &ShardEntry<'_>, key: String| {
        assert_eq!(entry.region.len(), entry.data.len(), "elements of `{}`", entry.name);
        let (tensor, global_shape) = (entry.name.clone(), entry.global_shape.clone());
        Shard { tensor, key, global_shape, region: entry.region.clone() }
    };
    let mut shards = Vec::new();
    for entry in entries {
        // A rank may hold several boxes of one tensor; a file's names must differ.
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

/// Swaps the link in one step, so that there is never none.
fn point_latest(dir: &Path, name: &str) -> Result<(), CheckpointError> {
    let (link, new_link) = (dir.join(LATEST), dir.join(format!("{TEMPORARY}{LATEST}")));
    files::remove(&new_link)?;
    std::os::unix::fs::symlink(name, &new_link)
        .map_err(CheckpointError::io("create", &new_link))?;
    files::rename(&new_link, &link)
}

/// Checkpoints of later steps, which a run resumed from before them leaves behind, are not touched.
fn remove_old(dir: &Path, step: u64, keep: usize) -> Result<(), CheckpointError> {
    let mut steps: Vec<(u64, String)> = files::names(dir)?
        .into_iter()
        .filter_map(|name| Some((step_of(&name)?, name)))
        .filter(|(other, _)| *other <= step)
        .collect();
    steps.sort();
    steps.reverse();
    for (_, name) in steps.iter().skip(keep.max(1)) {
        files::remove(&dir.join(name))?;
    }
    Ok(())
}

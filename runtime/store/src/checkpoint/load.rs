//! Loading checkpoints on any mesh: checkpoint resharding.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use crate::data::is_remote;

use super::folder::steps_in;
use super::locate::Located;
use super::place::storage_of;
use super::storage::StoredShards;
use super::{CheckpointError, Manifest, RunHistory, TensorBox, TensorSource, names};

/// Most reads of a manifest that is not as its hash says, in object storage.
const READS: usize = 3;

/// An open checkpoint, whose files match their hashes.
#[derive(Debug)]
pub struct Checkpoint {
    folder: PathBuf,
    manifest: Manifest,
    files: Vec<Box<dyn StoredShards>>,
    /// File and index of each shard, by tensor.
    shards: HashMap<String, Vec<(usize, usize)>>,
    skipped: Vec<CheckpointError>,
}

impl Checkpoint {
    /// Opens `DIR/step-N` or a copy of it, or the newest checkpoint of a folder given as `DIR/latest` or `DIR`. Links
    /// to these are followed.
    ///
    /// In the latter forms, a checkpoint that is torn, truncated or altered is skipped for the previous one of its
    /// branch; [`skipped`](Self::skipped) returns the reasons.
    ///
    /// # Errors
    /// No checkpoint, or none that is intact, each with the damaged file, and one that cannot be read for another
    /// reason.
    pub fn open(path: &Path) -> Result<Checkpoint, CheckpointError> {
        let (dir, latest) = match storage_of(path)?.locate(path)? {
            Located::One(folder) => return Checkpoint::open_step(&folder),
            Located::Newest { dir, latest } => (dir, latest),
        };
        let mut skipped = Vec::new();
        // Of the newest checkpoint whose manifest can be read.
        let mut history: Option<RunHistory> = None;
        let mut folders = newest_first(&dir, latest, path)?.into_iter();
        while let Some(folder) = folders.next() {
            let (step, own) = (names::step_of_path(&folder), Manifest::read_history(&folder));
            if let (Some(newest), Some(own), Some(step)) = (&history, &own, step)
                && !newest.contains(own, step)
            {
                skipped.push(CheckpointError::OtherBranch { path: folder });
                continue;
            }
            history = history.or(own);
            match Checkpoint::open_step(&folder) {
                Ok(checkpoint) => return Ok(Checkpoint { skipped, ..checkpoint }),
                Err(error) if error.is_damage() => skipped.push(error),
                Err(error) => {
                    return Err(match folders.next() {
                        Some(older) => {
                            CheckpointError::Unreadable { source: Box::new(error), older }
                        }
                        None => error,
                    });
                }
            }
        }
        Err(CheckpointError::NoneUsable { path: dir, tried: skipped })
    }

    /// Opens a checkpoint by its name. If a crash has left a complete one of its step under the name of a replaced one,
    /// this is used.
    fn open_step(folder: &Path) -> Result<Checkpoint, CheckpointError> {
        let opened = Checkpoint::open_folder(folder);
        let (Err(error), Some(step)) = (&opened, names::step_of_path(folder)) else {
            return opened;
        };
        if !error.is_damage() {
            return opened;
        }
        let replaced = names::replaced_path(folder.parent().unwrap_or(Path::new("")), step);
        match Checkpoint::open_folder(&replaced) {
            Ok(checkpoint) => Ok(checkpoint),
            // A run that has started in the meantime has moved it to its place.
            Err(_) if matches!(error, CheckpointError::NotFound { .. }) && folder.is_dir() => {
                Checkpoint::open_folder(folder)
            }
            Err(_) => opened,
        }
    }

    fn open_folder(folder: &Path) -> Result<Checkpoint, CheckpointError> {
        let storage = storage_of(folder)?;
        storage.check_folder(folder)?;
        let mut manifest = Manifest::read(folder);
        // A connection may have altered it.
        for _ in 1..if is_remote(folder) { READS } else { 1 } {
            if matches!(manifest, Err(CheckpointError::Damaged { .. })) {
                manifest = Manifest::read(folder);
            }
        }
        let manifest = manifest?;
        if let Some(step) = names::step_of_path(folder).filter(|step| *step != manifest.state.step)
        {
            let reason = format!(
                "it is that of a checkpoint of step {}, and the folder that of step {step}; rename the folder to {}",
                manifest.state.step,
                names::folder_name(manifest.state.step)
            );
            return Err(CheckpointError::damaged(&folder.join(names::MANIFEST), reason));
        }
        let open_files = storage.open_files(folder, &manifest.files)?;
        let mut shards: HashMap<String, Vec<_>> = HashMap::new();
        for (file_index, file) in manifest.files.iter().enumerate() {
            for (shard_index, shard) in file.shards.iter().enumerate() {
                shards.entry(shard.tensor.clone()).or_default().push((file_index, shard_index));
            }
        }
        let folder = folder.to_owned();
        Ok(Checkpoint { folder, manifest, files: open_files, shards, skipped: Vec::new() })
    }

    /// Returns the folder of the checkpoint.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the manifest, with the state of the run.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the reasons why newer checkpoints were skipped, newest first.
    pub fn skipped(&self) -> &[CheckpointError] {
        &self.skipped
    }

    /// Returns a checkpoint of the same folder to which this one does not lead, nor the reverse: that of the link
    /// `latest`, or any one if there is no link. `None` if there is none.
    pub fn other_branch(&self) -> Option<PathBuf> {
        let (step, history) = (self.manifest.state.step, &self.manifest.state.history);
        let dir = self.folder.parent()?;
        let latest = storage_of(dir).and_then(|storage| storage.linked_step(dir, names::LATEST));
        let others = match latest {
            Ok(Some(latest)) => vec![dir.join(names::folder_name(latest))],
            _ => {
                let steps = steps_in(dir).unwrap_or_default().into_iter().rev();
                steps.map(|step| dir.join(names::folder_name(step))).collect()
            }
        };
        let is_apart = |other: &PathBuf| {
            let Some(other_step) = names::step_of_path(other) else { return false };
            let found = Manifest::read_history(other);
            found.is_some_and(|found| {
                !found.contains(history, step) && !history.contains(&found, other_step)
            })
        };
        others.into_iter().find(is_apart)
    }

    /// Reads ahead what boxes of tensors need, in few large reads, if the checkpoint is in object storage.
    pub(crate) fn fetch(
        &self,
        boxes: impl IntoIterator<Item = (String, TensorBox)>,
    ) -> Result<(), CheckpointError> {
        if !is_remote(&self.folder) {
            return Ok(());
        }
        let boxes: Vec<(String, TensorBox)> = boxes.into_iter().collect();
        let mut needed = vec![Vec::new(); self.files.len()];
        for (name, requested) in &boxes {
            for (file, shard) in self.shards.get(name).into_iter().flatten() {
                needed[*file].push((&self.manifest.files[*file].shards[*shard], requested));
            }
        }
        let mut files = self.files.iter().zip(needed).filter(|(_, needed)| !needed.is_empty());
        files
            .try_for_each(|(file, needed)| file.fetch(&needed))
            .map_err(|error| self.with_older(error))
    }

    /// Frees the copies of what was read from object storage.
    pub fn release(&self) {
        self.files.iter().for_each(|file| file.release());
    }

    /// Adds to damage that was found while tensors were read an older checkpoint to continue from.
    fn with_older(&self, error: CheckpointError) -> CheckpointError {
        let (dir, step) = (self.folder.parent(), self.manifest.state.step);
        let steps = dir.filter(|_| error.is_damage()).and_then(|dir| steps_in(dir).ok());
        let older = steps.into_iter().flatten().rfind(|own| *own < step);
        match (dir, older) {
            (Some(dir), Some(older)) => {
                let older = dir.join(names::folder_name(older));
                CheckpointError::Unreadable { source: Box::new(error), older }
            }
            _ => error,
        }
    }

    /// Compares the tensors with the names and shapes that a model expects.
    ///
    /// # Errors
    /// [`CheckpointError::OtherModel`] lists every missing and every unexpected tensor, and the tensors of another
    /// shape.
    pub fn check_tensors(
        &self,
        expected: impl IntoIterator<Item = (String, Vec<usize>)>,
    ) -> Result<(), CheckpointError> {
        let found = self.manifest.tensors.iter();
        let found = found.map(|(name, tensor)| (name.as_str(), tensor.shape.as_slice()));
        compare_tensors(&self.folder, expected, found)
    }
}

impl TensorSource for Checkpoint {
    fn path_of(&self, _: &str) -> &Path {
        &self.folder
    }

    fn copy_box(
        &self,
        name: &str,
        shape: &[usize],
        tensor_box: &TensorBox,
        out: &mut [f32],
    ) -> Result<usize, CheckpointError> {
        let refuse = |reason: String| CheckpointError::tensor_error(&self.folder, name, reason);
        let tensor = self.manifest.tensors.get(name).ok_or_else(|| refuse("is missing".into()))?;
        if tensor.shape != shape {
            let found = &tensor.shape;
            return Err(refuse(format!("has shape {found:?}, the model expects {shape:?}")));
        }
        let mut copied = 0;
        // A tensor without elements may have no shard.
        for (file, shard) in self.shards.get(name).into_iter().flatten() {
            let shard = &self.manifest.files[*file].shards[*shard];
            let common = self.files[*file].copy_shard(shard, out, tensor_box);
            copied += common.map_err(|error| self.with_older(error))?;
        }
        Ok(copied)
    }
}

/// Lists the checkpoints in `dir` from that of step `latest` downwards; `path` is the path in messages.
fn newest_first(
    dir: &Path,
    latest: Option<u64>,
    path: &Path,
) -> Result<Vec<PathBuf>, CheckpointError> {
    // The target of a link says more.
    let path = if path.is_symlink() { dir } else { path };
    let storage = storage_of(dir)?;
    storage.check_folder(dir).map_err(|error| match error {
        CheckpointError::NotFound { reason, .. } => CheckpointError::not_found(path, reason),
        error => error,
    })?;
    let found = storage.names_in(dir)?;
    let step_of = |name: &String| names::step_of(name).or_else(|| names::replaced_step_of(name));
    let mut steps: Vec<u64> = found.iter().filter_map(step_of).collect();
    // The target of `latest` comes first even if it is missing, which is then reported.
    steps.extend(latest);
    steps.retain(|step| latest.is_none_or(|latest| *step <= latest));
    steps.sort_unstable();
    steps.dedup();
    if steps.is_empty() {
        let reason = if found.iter().any(|name| name == "config.json") {
            "the folder holds no step-* folder, but a Hugging Face model, which --init-from reads"
        } else {
            "the folder holds no step-* folder"
        };
        return Err(CheckpointError::not_found(path, reason));
    }
    Ok(steps.into_iter().rev().map(|step| dir.join(names::folder_name(step))).collect())
}

/// Compares the tensors of a model with those found at `path`. Differences are in the order of the model.
pub(super) fn compare_tensors<'a>(
    path: &Path,
    expected: impl IntoIterator<Item = (String, Vec<usize>)>,
    found: impl IntoIterator<Item = (&'a str, &'a [usize])>,
) -> Result<(), CheckpointError> {
    let mut found: BTreeMap<&str, &[usize]> = found.into_iter().collect();
    let mut differences = Vec::new();
    for (name, shape) in expected {
        match found.remove(name.as_str()) {
            None => differences.push(format!("missing: {name}")),
            Some(found) if found != shape.as_slice() => {
                differences.push(format!("{name} has shape {found:?}, expected {shape:?}"));
            }
            Some(_) => {}
        }
    }
    differences.extend(found.into_keys().map(|name| format!("unexpected: {name}")));
    if differences.is_empty() {
        Ok(())
    } else {
        Err(CheckpointError::OtherModel { path: path.to_owned(), differences })
    }
}

//! Loading checkpoints on any mesh: checkpoint resharding.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use super::save::{LATEST, folder_name, step_of};
use super::tensors::TensorFile;
use super::{CheckpointError, Manifest, TensorBox, TensorSource, files};

/// An open checkpoint, whose files match their hashes.
#[derive(Debug)]
pub struct Checkpoint {
    folder: PathBuf,
    manifest: Manifest,
    files: Vec<TensorFile>,
    /// File and index of each shard, by tensor.
    shards: HashMap<String, Vec<(usize, usize)>>,
    skipped: Vec<CheckpointError>,
}

impl Checkpoint {
    /// Opens `DIR/step-N` or a copy of it, or the newest checkpoint of a folder given as `DIR/latest` or `DIR`.
    ///
    /// In the latter forms, a checkpoint that is torn, truncated or altered is skipped for the previous one;
    /// [`skipped`](Self::skipped) returns the reasons.
    ///
    /// # Errors
    /// No checkpoint, or none that is intact, each with the damaged file.
    pub fn open(path: &Path) -> Result<Checkpoint, CheckpointError> {
        let is_step = path.file_name().and_then(|name| step_of(name.to_str()?)).is_some();
        // A copy of one checkpoint, perhaps under the name `latest`.
        let is_copy = !path.is_symlink() && Manifest::is_in(path);
        if is_step || is_copy {
            return Checkpoint::open_folder(path);
        }
        let is_latest = path.file_name().is_some_and(|name| name == LATEST);
        let dir = match (is_latest, path.parent()) {
            (true, Some(dir)) if dir.as_os_str().is_empty() => Path::new("."),
            (true, Some(dir)) => dir,
            _ => path,
        };
        let mut skipped = Vec::new();
        for folder in newest_first(dir, path)? {
            match Checkpoint::open_folder(&folder) {
                Ok(checkpoint) => return Ok(Checkpoint { skipped, ..checkpoint }),
                Err(error) => skipped.push(error),
            }
        }
        Err(CheckpointError::NoneUsable { path: dir.to_owned(), tried: skipped })
    }

    fn open_folder(folder: &Path) -> Result<Checkpoint, CheckpointError> {
        if !folder.is_dir() {
            let reason = files::no_folder_reason(folder).into();
            return Err(CheckpointError::NotFound { path: folder.to_owned(), reason });
        }
        let manifest = Manifest::read(folder)?;
        let mut open_files = Vec::new();
        let mut shards: HashMap<String, Vec<_>> = HashMap::new();
        for (file_index, file) in manifest.files.iter().enumerate() {
            let path = folder.join(&file.name);
            open_files.push(TensorFile::open_verified(&path, file.bytes, &file.xxh3)?);
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

    /// Compares the tensors with the names and shapes that a model expects.
    ///
    /// # Errors
    /// [`CheckpointError::OtherModel`] lists every missing and every unexpected tensor, and those of another shape.
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
        for (file, shard) in &self.shards[name] {
            let shard = &self.manifest.files[*file].shards[*shard];
            copied +=
                self.files[*file].copy_common(&shard.key, &shard.tensor_box, out, tensor_box)?;
        }
        Ok(copied)
    }
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

/// Lists the checkpoints in `dir` from that of `latest` downwards; `path` is the path in messages.
fn newest_first(dir: &Path, path: &Path) -> Result<Vec<PathBuf>, CheckpointError> {
    let not_found = |reason: &str| {
        let (path, reason) = (path.to_owned(), reason.to_owned());
        CheckpointError::NotFound { path, reason }
    };
    if !dir.is_dir() {
        return Err(not_found(files::no_folder_reason(dir)));
    }
    let latest = std::fs::read_link(dir.join(LATEST))
        .ok()
        .and_then(|target| step_of(target.file_name()?.to_str()?));
    let mut steps: Vec<u64> =
        files::file_names(dir)?.iter().filter_map(|name| step_of(name)).collect();
    // The target of `latest` comes first even if it is missing, which is then reported.
    steps.extend(latest);
    steps.retain(|step| latest.is_none_or(|latest| *step <= latest));
    steps.sort_unstable();
    steps.dedup();
    if steps.is_empty() {
        return Err(not_found("the folder holds no step-* folder"));
    }
    Ok(steps.into_iter().rev().map(|step| dir.join(folder_name(step))).collect())
}

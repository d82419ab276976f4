//! The operations on checkpoints that depend on their place.

use std::fmt::Debug;
use std::fs::File;
use std::path::{Path, PathBuf};

use super::locate::Located;
use super::{CheckpointError, RankFile, SavedShard, TensorBox};

/// The operations on checkpoints that depend on their place. A path in object storage is a URL.
pub trait CheckpointStorage: Debug + Send + Sync {
    /// Finds the checkpoints that `path` names.
    fn locate(&self, path: &Path) -> Result<Located, CheckpointError>;

    /// Checks that `path` is a folder.
    fn check_folder(&self, path: &Path) -> Result<(), CheckpointError>;

    /// Lists the names in a folder, in no order.
    fn names_in(&self, folder: &Path) -> Result<Vec<String>, CheckpointError>;

    /// Reads a file of a checkpoint, of at most `limit` bytes of text.
    fn read_text(&self, folder: &Path, name: &str, limit: u64) -> Result<Vec<u8>, CheckpointError>;

    /// Returns the step of the checkpoint to which the link `name` in `dir` leads, if there is one.
    fn linked_step(&self, dir: &Path, name: &str) -> Result<Option<u64>, CheckpointError>;

    /// Opens the files of ranks, which must be as the manifest describes them.
    fn open_files(
        &self,
        folder: &Path,
        files: &[RankFile],
    ) -> Result<Vec<Box<dyn StoredShards>>, CheckpointError>;

    /// Locks `dir` for a run, brings it into order, and checks that checkpoints can be saved in it. The lock ends when
    /// the returned value is dropped.
    fn prepare(&self, dir: &Path) -> Result<Box<dyn HeldFolder>, CheckpointError>;

    /// Checks that the process of `rank` can write to `dir`.
    fn check_writable(&self, dir: &Path, rank: usize) -> Result<(), CheckpointError>;

    /// Checks that `best` in `dir` can be replaced by a link.
    fn check_best(&self, dir: &Path) -> Result<(), CheckpointError>;

    /// Removes what a failure has left incomplete in `dir`, ignoring errors.
    fn abandon(&self, dir: &Path);

    /// Begins a checkpoint in `dir`, after it is brought into order.
    fn begin(&self, dir: &Path, step: u64) -> Result<CheckpointAttempt, CheckpointError>;

    /// Creates the file of a rank. Returns its path in messages, and its name in the checkpoint.
    fn create_file(
        &self,
        attempt: &CheckpointAttempt,
        rank: usize,
    ) -> Result<(File, PathBuf, String), CheckpointError>;

    /// Returns the length of the parts that are hashed separately, of a file of so many shards and bytes of tensors.
    fn part_bytes(&self, shards: usize, bytes: u64) -> Option<u64>;

    /// Stores the file of a rank, of so many bytes. Fails once `is_cancelled` returns true.
    fn store_file(
        &self,
        attempt: &CheckpointAttempt,
        name: &str,
        written: (&File, u64),
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<(), CheckpointError>;

    /// Stores the description of the file of a rank, for the rank that completes the checkpoint.
    fn describe_file(
        &self,
        attempt: &CheckpointAttempt,
        rank: usize,
        description: &[u8],
    ) -> Result<(), CheckpointError>;

    /// Waits for the description of the file of a rank, and removes it. Returns `None` once `is_cancelled` returns
    /// true.
    fn wait_for_description(
        &self,
        attempt: &CheckpointAttempt,
        rank: usize,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<u8>>, CheckpointError>;

    /// Completes a checkpoint, whose files are stored, with its manifest and the hash of it; `latest` becomes a link to
    /// it. Returns the folder.
    fn complete(
        &self,
        attempt: &CheckpointAttempt,
        manifest: (&[u8], &str),
    ) -> Result<PathBuf, CheckpointError>;

    /// Makes `name` a link to a checkpoint in `dir`.
    fn link(&self, dir: &Path, name: &str, step: u64) -> Result<(), CheckpointError>;

    /// Removes a checkpoint, which does not exist from the beginning of it.
    fn remove(&self, dir: &Path, step: u64) -> Result<(), CheckpointError>;
}

/// A folder of checkpoints that a run holds.
pub trait HeldFolder: Debug + Send + Sync {}

/// The shards of a rank's file. Ranks of a process share it.
pub trait StoredShards: Debug + Send + Sync {
    /// Reads parts of shards ahead, together, where single reads take long.
    fn fetch(&self, _needed: &[(&SavedShard, &TensorBox)]) -> Result<(), CheckpointError> {
        Ok(())
    }

    /// Frees the copies of what was read, which is read again when it is needed.
    fn release(&self) {}

    /// Copies the intersection of a shard with `requested`, and returns its number of elements.
    fn copy_shard(
        &self,
        shard: &SavedShard,
        out: &mut [f32],
        requested: &TensorBox,
    ) -> Result<usize, CheckpointError>;
}

/// A checkpoint that is being saved.
#[derive(Debug, Clone)]
pub struct CheckpointAttempt {
    /// The folder of checkpoints.
    pub dir: PathBuf,
    /// Completed steps.
    pub step: u64,
    /// Distinguishes the files of attempts that save the same step, where these are in one folder; else empty.
    pub token: String,
}

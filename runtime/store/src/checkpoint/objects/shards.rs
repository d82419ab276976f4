//! The file of a rank in object storage. Only the parts that are needed are read.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use meshwright_remote::ObjectFolder;

use super::temporary::temporary_file;
use crate::checkpoint::storage::StoredShards;
use crate::checkpoint::tensor_box::{copy_common, runs_of_common};
use crate::checkpoint::tensors::hash_of;
use crate::checkpoint::{CheckpointError, RankFile, SavedShard, StoredDtype, TensorBox};

/// Tries to read a part whose bytes differ from their hash: the connection may have altered them.
const TRIES: usize = 3;

/// Most bytes that are in memory together while parts are read, unless one part has more.
const BATCH_BYTES: u64 = 256 << 20;

/// A rank's file. Its parts are read when they are needed first, verified, and kept in a temporary file for the other
/// ranks of the process.
#[derive(Debug)]
pub struct ObjectShards {
    folder: ObjectFolder,
    path: PathBuf,
    file: RankFile,
    part_bytes: u64,
    /// Offset of the first tensor.
    data_start: u64,
    parts: Mutex<ReadParts>,
}

/// The parts that were read so far.
#[derive(Debug, Default)]
struct ReadParts {
    copy: Option<File>,
    is_read: Vec<bool>,
}

impl ObjectShards {
    /// Opens a file of the checkpoint in `folder`, which has the path `path` in messages. Reads nothing.
    pub fn new(folder: ObjectFolder, path: PathBuf, file: RankFile) -> ObjectShards {
        let elements: u64 = file.shards.iter().map(|shard| shard.tensor_box.len() as u64).sum();
        let data_start = file.bytes - elements * size_of::<f32>() as u64;
        // A copy of a checkpoint that was saved on a disk is read as a whole.
        let part_bytes = file.parts.as_ref().map_or(file.bytes.max(1), |parts| parts.bytes);
        ObjectShards { folder, path, file, part_bytes, data_start, parts: Mutex::default() }
    }

    /// Returns the offset of a shard's first byte: shards are stored in the order of the manifest.
    fn start_of(&self, shard: &SavedShard) -> u64 {
        let before = self.file.shards.iter().take_while(|own| own.key != shard.key);
        let elements: u64 = before.map(|own| own.tensor_box.len() as u64).sum();
        self.data_start + elements * size_of::<f32>() as u64
    }

    /// Marks the parts that hold the intersection of a shard with `requested`.
    fn mark(&self, shard: &SavedShard, requested: &TensorBox, needed: &mut [bool]) {
        let start = self.start_of(shard);
        runs_of_common(&shard.tensor_box, requested, |run: Range<usize>| {
            let byte = |element: usize| start + (element * size_of::<f32>()) as u64;
            let last = (byte(run.end) - 1) / self.part_bytes;
            needed[(byte(run.start) / self.part_bytes) as usize..=last as usize].fill(true);
        });
    }

    fn n_parts(&self) -> usize {
        self.file.bytes.div_ceil(self.part_bytes) as usize
    }

    fn range_of(&self, part: usize) -> Range<u64> {
        let start = part as u64 * self.part_bytes;
        start..self.file.bytes.min(start + self.part_bytes)
    }

    /// Reads the `needed` parts that were not read yet.
    fn read_parts(&self, needed: &[bool]) -> Result<MutexGuard<'_, ReadParts>, CheckpointError> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.is_read.resize(self.n_parts(), false);
        // The header too: nothing of a file that is used may be altered.
        let is_needed = |part: usize| needed[part] || self.range_of(part).start < self.data_start;
        let most = (BATCH_BYTES / self.part_bytes).max(1) as usize;
        let mut tries = 0;
        loop {
            let is_missing = |part: &usize| is_needed(*part) && !parts.is_read[*part];
            let missing: Vec<usize> = (0..needed.len()).filter(is_missing).take(most).collect();
            let Some(first) = missing.first() else { break };
            if tries == TRIES {
                let Range { start, end } = self.range_of(*first);
                let reason =
                    format!("bytes {start} to {end} differ from their hash in the manifest");
                return Err(CheckpointError::damaged(&self.path, reason));
            }
            if parts.copy.is_none() {
                parts.copy = Some(temporary_file()?);
            }
            let groups: Vec<&[usize]> = missing.chunk_by(|a, b| a + 1 == *b).collect();
            let ranges: Vec<Range<u64>> = (groups.iter())
                .map(|group| {
                    self.range_of(group[0]).start..self.range_of(group[group.len() - 1]).end
                })
                .collect();
            let read = self.folder.get_ranges(&self.file.name, &ranges);
            let read = read.map_err(CheckpointError::io_error("read", &self.path))?;
            let ReadParts { copy, is_read } = &mut *parts;
            let copy = copy.as_ref().expect("it was created");
            for (group, content) in groups.iter().zip(read) {
                for (part, content) in group.iter().zip(content.chunks(self.part_bytes as usize)) {
                    if self.is_intact(*part, content) {
                        let written = copy.write_all_at(content, self.range_of(*part).start);
                        written.map_err(CheckpointError::io_error("keep a part of", &self.path))?;
                        is_read[*part] = true;
                    }
                }
            }
            let has_all = missing.iter().all(|part| is_read[*part]);
            tries = if has_all { 0 } else { tries + 1 };
        }
        Ok(parts)
    }

    fn is_intact(&self, part: usize, content: &[u8]) -> bool {
        match &self.file.parts {
            Some(hashes) => hashes.matches(part, content),
            None => hash_of(content) == self.file.xxh3,
        }
    }
}

impl StoredShards for ObjectShards {
    fn fetch(&self, needed: &[(&SavedShard, &TensorBox)]) -> Result<(), CheckpointError> {
        let mut parts = vec![false; self.n_parts()];
        needed.iter().for_each(|(shard, requested)| self.mark(shard, requested, &mut parts));
        self.read_parts(&parts).map(drop)
    }

    fn release(&self) {
        *self.parts.lock().unwrap_or_else(PoisonError::into_inner) = ReadParts::default();
    }

    fn copy_shard(
        &self,
        shard: &SavedShard,
        out: &mut [f32],
        requested: &TensorBox,
    ) -> Result<usize, CheckpointError> {
        let held = &shard.tensor_box;
        let Some(common) = held.intersection(requested) else { return Ok(0) };
        if common.is_empty() {
            return Ok(0);
        }
        let mut needed = vec![false; self.n_parts()];
        self.mark(shard, requested, &mut needed);
        // Only the rows of the shard that are requested.
        let mut rows = held.clone();
        if let Some(first) = common.offset.first() {
            (rows.offset[0], rows.shape[0]) = (*first, common.shape[0]);
        }
        let width = size_of::<f32>();
        let skipped = held.offset.first().map_or(0, |first| {
            (rows.offset[0] - first) * held.shape[1..].iter().product::<usize>()
        });
        let mut bytes = vec![0; rows.len() * width];
        let parts = self.read_parts(&needed)?;
        let copy = parts.copy.as_ref().expect("a part was read");
        let start = self.start_of(shard) + (skipped * width) as u64;
        read_up_to(copy, &mut bytes, start)
            .map_err(CheckpointError::io_error("read the copy of", &self.path))?;
        drop(parts);
        Ok(copy_common(&bytes, StoredDtype::F32, &rows, out, requested))
    }
}

/// Fills `bytes` from a file, and leaves what is beyond its end: parts that were not needed may be missing there.
fn read_up_to(file: &File, mut bytes: &mut [u8], mut start: u64) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match file.read_at(bytes, start)? {
            0 => break,
            count => {
                bytes = &mut bytes[count..];
                start += count as u64;
            }
        }
    }
    Ok(())
}

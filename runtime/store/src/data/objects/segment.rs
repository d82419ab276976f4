//! A file of the cache: some blocks of an object, and their hashes.
//!
//! Nothing in it is trusted: a block counts as missing unless its hash fits. So processes may write to it without
//! regard to each other and be killed at any time, and damage is noticed.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of a block, the least that is read of an object.
pub const BLOCK_BYTES: usize = 64 << 10;

/// Blocks of a file.
pub const BLOCKS: u64 = 64;

/// Bytes before the blocks: their hashes, each of 8 bytes.
const TABLE_BYTES: u64 = 4096;

/// Time between two attempts to lock the file.
const LOCK_INTERVAL: Duration = Duration::from_millis(5);

/// Time in which a further use of the file is not noted.
const USE_INTERVAL: Duration = Duration::from_secs(30);

/// An open file of the cache.
#[derive(Debug)]
pub struct Segment {
    file: File,
    seed: u64,
}

impl Segment {
    /// Opens a file; its hashes are keyed by `seed`, which differs for other files.
    pub fn open(path: &Path, seed: u64, creates: bool) -> io::Result<Segment> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(creates).truncate(false).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(ErrorKind::InvalidInput.into());
        }
        Ok(Segment { file, seed })
    }

    /// Waits until no other thread or process fetches blocks of the file, or until `gives_up` returns true: blocks that
    /// are fetched twice are the same.
    pub fn lock(&self, gives_up: &dyn Fn() -> bool) {
        while matches!(self.file.try_lock(), Err(TryLockError::WouldBlock)) && !gives_up() {
            sleep(LOCK_INTERVAL);
        }
    }

    /// Returns which blocks are there, unless they are damaged.
    pub fn held(&self) -> [bool; BLOCKS as usize] {
        let mut table = [0; 8 * BLOCKS as usize];
        // Of a shorter file, the rest is missing.
        let read = self.file.read_at(&mut table, 0).unwrap_or(0);
        table[read..].fill(0);
        std::array::from_fn(|index| table[8 * index..8 * index + 8] != [0; 8])
    }

    /// Reads block `index`, of `len` bytes; `None` if it is missing or damaged.
    pub fn read(&self, index: u64, len: usize) -> Option<Vec<u8>> {
        let mut hash = [0; 8];
        self.file.read_exact_at(&mut hash, 8 * index).ok()?;
        if hash == [0; 8] {
            return None;
        }
        let mut block = vec![0; len];
        self.file.read_exact_at(&mut block, place_of(index)).ok()?;
        (u64::from_le_bytes(hash) == self.hash(index, &block)).then_some(block)
    }

    /// Writes block `index`.
    pub fn write(&self, index: u64, block: &[u8]) -> io::Result<()> {
        self.file.write_all_at(block, place_of(index))?;
        self.file.write_all_at(&self.hash(index, block).to_le_bytes(), 8 * index)
    }

    /// Notes that the file is used: the one that was not used for the longest time is removed first.
    pub fn note_use(&self) {
        let now = SystemTime::now();
        let noted = self.file.metadata().and_then(|found| found.modified());
        if noted.is_ok_and(|noted| now.duration_since(noted).is_ok_and(|age| age > USE_INTERVAL)) {
            // A file system without times keeps the order of writes.
            let _ = self.file.set_modified(now);
        }
    }

    /// Returns the hash of a block, which is not 0.
    fn hash(&self, index: u64, block: &[u8]) -> u64 {
        xxh3_64_with_seed(block, self.seed ^ index).max(1)
    }
}

fn place_of(index: u64) -> u64 {
    TABLE_BYTES + index * BLOCK_BYTES as u64
}

//! Blocks of objects on a disk, up to a size.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::segment::{BLOCKS, Segment};

/// End of the names of files.
const EXTENSION: &str = "range";

/// The size is checked whenever a thread has written this part of the limit.
const CHECKED_PART: u64 = 32;

/// A folder of blocks. Processes may share it.
#[derive(Debug)]
pub struct RangeCache {
    folder: PathBuf,
    limit: u64,
    /// Bytes that this process has written since it checked the size.
    unchecked: AtomicU64,
    has_warned: AtomicBool,
}

impl RangeCache {
    /// Opens a folder of at most about `limit` bytes, and creates it if it is missing.
    ///
    /// # Errors
    /// A folder that cannot be written to.
    pub fn open(folder: &Path, limit: u64) -> io::Result<RangeCache> {
        fs::create_dir_all(folder)?;
        tempfile::tempfile_in(folder)?;
        let (folder, unchecked) = (folder.to_owned(), AtomicU64::new(limit));
        Ok(RangeCache { folder, limit, unchecked, has_warned: AtomicBool::new(false) })
    }

    /// Opens file `number` of the object with this key, if there is one.
    pub fn find(&self, key: u128, number: u64) -> Option<Segment> {
        self.open_segment(key, number, false).ok()
    }

    /// Opens file `number` of the object with this key; `None` if it cannot be created.
    pub fn create(&self, key: u128, number: u64) -> Option<Segment> {
        let opened = self.open_segment(key, number, true).or_else(|error| {
            if error.kind() != ErrorKind::NotFound {
                return Err(error);
            }
            // Someone has removed the folder.
            fs::create_dir_all(&self.folder)?;
            self.open_segment(key, number, true)
        });
        opened.map_err(|error| self.warn(&error)).ok()
    }

    fn open_segment(&self, key: u128, number: u64, creates: bool) -> io::Result<Segment> {
        let path = self.folder.join(format!("{key:032x}-{number:08x}.{EXTENSION}"));
        Segment::open(&path, key as u64 ^ number.wrapping_mul(BLOCKS), creates)
    }

    /// Writes a block. What cannot be written is fetched again when it is read.
    pub fn write(&self, segment: &Segment, index: u64, block: &[u8]) {
        if let Err(error) = segment.write(index, block) {
            self.warn(&error);
            self.shrink(self.used() / 2);
            return;
        }
        let len = block.len() as u64;
        if self.unchecked.fetch_add(len, Ordering::Relaxed) + len >= self.limit / CHECKED_PART {
            self.unchecked.store(0, Ordering::Relaxed);
            self.shrink(self.limit);
        }
    }

    /// Removes the files that were not used for the longest time until the others have at most `limit` bytes.
    fn shrink(&self, limit: u64) {
        let mut files = self.files();
        let mut used: u64 = files.iter().map(|file| file.bytes).sum();
        if used <= limit {
            return;
        }
        files.sort_by_key(|file| file.used);
        // Some more, so that not every write removes a file.
        for file in files {
            if used <= limit - limit / CHECKED_PART {
                break;
            }
            // Another process may have removed it.
            let _ = fs::remove_file(&file.path);
            used -= file.bytes;
        }
    }

    /// Returns the bytes of all files.
    fn used(&self) -> u64 {
        self.files().iter().map(|file| file.bytes).sum()
    }

    fn files(&self) -> Vec<CachedFile> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let file = |path: PathBuf| {
            let name = path.file_stem()?.to_str()?;
            let is_own = path.extension()? == EXTENSION && name.len() == 41;
            let found =
                fs::symlink_metadata(&path).ok().filter(|found| is_own && found.is_file())?;
            let used = (found.mtime(), found.mtime_nsec());
            Some(CachedFile { path, used, bytes: 512 * found.blocks() })
        };
        entries.filter_map(|entry| file(entry.path())).collect()
    }

    fn warn(&self, error: &io::Error) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            eprintln!(
                "warning: --data-cache: cannot write to {}: {error}; parts of the data are read again from object \
                 storage whenever they are needed; give another folder, or a smaller --data-cache-size",
                self.folder.display()
            );
        }
    }
}

/// A file of the cache.
struct CachedFile {
    path: PathBuf,
    /// The time of its last use, in seconds and nanoseconds.
    used: (i64, i64),
    /// Bytes on the disk.
    bytes: u64,
}

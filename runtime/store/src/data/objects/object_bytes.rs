//! The bytes of an object, by way of the cache.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use meshwright_os::requested_stop;
use xxhash_rust::xxh3::xxh3_128;

use crate::data::DataError;
use crate::data::byte_source::ByteSource;
use crate::data::interruption::is_interrupted;

use super::range_cache::RangeCache;
use super::range_reader::{PATIENCE, Patience, RangeReader};
use super::segment::{BLOCK_BYTES, BLOCKS, Segment};

/// Blocks that are held in memory, so that reads of neighboring rows read and hash a block once.
const HELD: usize = 16;

/// Most files of the cache from which blocks are fetched together: each is open meanwhile.
const FETCHED_SEGMENTS: usize = 32;

/// Most blocks that are fetched together, which are in memory meanwhile.
const FETCHED_BLOCKS: usize = 256;

/// Longest wait for other threads and processes that fetch the same blocks.
const LOCK_LIMIT: Duration = Duration::from_secs(10);

/// Time after which rows are not fetched ahead any more, but when they are read.
const PREPARE_LIMIT: Duration = Duration::from_secs(60);

/// Longest wait between two tries.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Time for which a read goes on after a stop was asked for.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// Blocks with their numbers.
type NumberedBlocks = Vec<(u64, Arc<[u8]>)>;

/// The bytes of an object.
#[derive(Debug)]
pub struct ObjectBytes<R> {
    path: PathBuf,
    object: R,
    cache: Arc<RangeCache>,
    /// Hash of path, length and version.
    key: u128,
    patience: Patience,
    held: Mutex<VecDeque<(u64, Arc<[u8]>)>>,
    has_warned: AtomicBool,
}

impl<R: RangeReader> ObjectBytes<R> {
    /// Reads `object`, whose path is its name in messages, by way of `cache`.
    pub fn new(path: &Path, object: R, cache: Arc<RangeCache>) -> ObjectBytes<R> {
        let text = format!("1 {} {} {}", path.display(), object.length(), object.version());
        ObjectBytes {
            path: path.to_owned(),
            key: xxh3_128(text.as_bytes()),
            object,
            cache,
            patience: PATIENCE,
            held: Mutex::default(),
            has_warned: AtomicBool::new(false),
        }
    }

    #[cfg(test)]
    pub fn with_patience(self, patience: Patience) -> ObjectBytes<R> {
        ObjectBytes { patience, ..self }
    }

    #[cfg(test)]
    pub fn cache(&self) -> &Arc<RangeCache> {
        &self.cache
    }

    /// Returns the bytes of a block in the object.
    fn range_of(&self, block: u64) -> Range<u64> {
        let start = block * BLOCK_BYTES as u64;
        start..self.object.length().min(start + BLOCK_BYTES as u64)
    }

    fn held_block(&self, block: u64) -> Option<Arc<[u8]>> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().find(|(own, _)| *own == block).map(|(_, bytes)| Arc::clone(bytes))
    }

    fn hold_block(&self, block: u64, bytes: &Arc<[u8]>) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if !held.iter().any(|(own, _)| *own == block) {
            held.truncate(HELD - 1);
            held.push_front((block, Arc::clone(bytes)));
        }
    }

    fn cached_block(&self, block: u64) -> Option<Arc<[u8]>> {
        let segment = self.cache.find(self.key, block / BLOCKS)?;
        let Range { start, end } = self.range_of(block);
        let bytes = segment.read(block % BLOCKS, (end - start) as usize)?;
        segment.note_use();
        Some(bytes.into())
    }

    /// Returns blocks in order, and fetches those that are missing.
    fn blocks(&self, blocks: Range<u64>) -> Result<Vec<Arc<[u8]>>, DataError> {
        let mut found = BTreeMap::new();
        for block in blocks.clone() {
            if let Some(bytes) = self.held_block(block).or_else(|| self.cached_block(block)) {
                found.insert(block, bytes);
            }
        }
        let missing: Vec<u64> = blocks.filter(|block| !found.contains_key(block)).collect();
        for blocks in grouped(&missing) {
            found.extend(self.fetch_patiently(blocks)?);
        }
        found.iter().for_each(|(block, bytes)| self.hold_block(*block, bytes));
        Ok(found.into_values().collect())
    }

    /// Fetches blocks, again and again for some minutes if that fails for a reason that may pass.
    fn fetch_patiently(&self, blocks: &[u64]) -> Result<NumberedBlocks, DataError> {
        let start = Instant::now();
        let gives_up = || {
            let is_stopped = || requested_stop().is_some() && start.elapsed() > STOP_LIMIT;
            is_interrupted() || start.elapsed() > self.patience.limit || is_stopped()
        };
        let mut wait = self.patience.first_wait;
        let mut last = None;
        loop {
            let error = match self.fetch(blocks, &gives_up) {
                Ok(found) => {
                    self.has_warned.store(false, Ordering::Relaxed);
                    return Ok(found);
                }
                // The failure before says more.
                Err(error) if error.kind() == ErrorKind::Interrupted => last.unwrap_or_else(|| {
                    let reason = "there was no answer";
                    io::Error::new(ErrorKind::TimedOut, reason)
                }),
                Err(error) => error,
            };
            let may_pass = matches!(
                error.kind(),
                ErrorKind::ConnectionAborted | ErrorKind::UnexpectedEof | ErrorKind::TimedOut
            );
            if !may_pass || gives_up() || start.elapsed() + wait > self.patience.limit {
                return Err(self.error(error, start));
            }
            self.warn(&error);
            let until = Instant::now() + wait;
            while Instant::now() < until && !gives_up() {
                sleep(wait.min(Duration::from_millis(100)));
            }
            wait = LONGEST_WAIT.min(2 * wait);
            last = Some(error);
        }
    }

    /// Fetches blocks, whose numbers ascend, unless another thread or process has done so.
    fn fetch(&self, blocks: &[u64], is_cancelled: &dyn Fn() -> bool) -> io::Result<NumberedBlocks> {
        let start = Instant::now();
        // The holder may be a process that is stopped.
        let gives_up = || start.elapsed() > LOCK_LIMIT || is_cancelled();
        // All take the locks in one order, so no two wait for each other.
        let mut segments: Vec<(u64, Option<Segment>)> = Vec::new();
        for block in blocks {
            let number = block / BLOCKS;
            if segments.last().is_none_or(|(last, _)| *last != number) {
                let segment = self.cache.create(self.key, number);
                segment.iter().for_each(|segment| segment.lock(&gives_up));
                segments.push((number, segment));
            }
        }
        let mut found = Vec::new();
        let mut missing = Vec::new();
        for block in blocks {
            match self.cached_block(*block) {
                Some(bytes) => found.push((*block, bytes)),
                None => missing.push(*block),
            }
        }
        let ranges = self.joined(&missing);
        if ranges.is_empty() {
            return Ok(found);
        }
        let fetched = self.object.read(&ranges, is_cancelled)?;
        let mut missing = missing.into_iter();
        for (bytes, range) in fetched.iter().zip(&ranges) {
            if bytes.len() as u64 != range.end - range.start {
                let reason = "the answer has another length than the range";
                return Err(io::Error::new(ErrorKind::UnexpectedEof, reason));
            }
            for (bytes, block) in bytes.chunks(BLOCK_BYTES).zip(&mut missing) {
                let segment = segments.iter().find(|(number, _)| *number == block / BLOCKS);
                if let Some((_, Some(segment))) = segment {
                    self.cache.write(segment, block % BLOCKS, bytes);
                }
                found.push((block, bytes.into()));
            }
        }
        Ok(found)
    }

    /// Returns the ranges of blocks, those of neighbors as one.
    fn joined(&self, blocks: &[u64]) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for block in blocks {
            let range = self.range_of(*block);
            match ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => ranges.push(range),
            }
        }
        ranges
    }

    fn error(&self, source: io::Error, start: Instant) -> DataError {
        let (path, seconds) = (self.path.clone(), start.elapsed().as_secs());
        if source.kind() == ErrorKind::StaleNetworkFileHandle {
            return DataError::Replaced { name: path.display().to_string() };
        }
        let source = match source.kind() {
            kind if self.has_warned.load(Ordering::Relaxed) => {
                io::Error::new(kind, format!("{source} (tried for {seconds} s)"))
            }
            _ => source,
        };
        DataError::Io { path, source }
    }

    fn warn(&self, error: &io::Error) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            eprintln!(
                "warning: --data: cannot read {}: {error}; it is tried again for {} minutes",
                self.path.display(),
                self.patience.limit.as_secs() / 60
            );
        }
    }
}

impl<R: RangeReader> ByteSource for ObjectBytes<R> {
    fn len(&self) -> usize {
        self.object.length() as usize
    }

    fn part(&self, range: Range<usize>) -> Result<Cow<'_, [u8]>, DataError> {
        let mut bytes = Vec::with_capacity(range.len());
        let blocks = blocks_of(&range);
        let first = blocks.start as usize * BLOCK_BYTES;
        for (index, block) in self.blocks(blocks)?.iter().enumerate() {
            let start = first + index * BLOCK_BYTES;
            let from = range.start.saturating_sub(start);
            bytes.extend_from_slice(&block[from..block.len().min(range.end - start)]);
        }
        Ok(bytes.into())
    }

    fn is_distant(&self) -> bool {
        true
    }

    fn prepare(&self, ranges: &[Range<usize>]) {
        let mut blocks: Vec<u64> = ranges.iter().flat_map(blocks_of).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let mut table = None;
        blocks.retain(|block| {
            let number = block / BLOCKS;
            if table.as_ref().is_none_or(|(own, _)| *own != number) {
                let segment = self.cache.find(self.key, number);
                table = Some((number, segment.map(|segment| segment.held())));
            }
            let held = table.as_ref().and_then(|(_, held)| held.as_ref());
            held.is_none_or(|held| !held[(block % BLOCKS) as usize])
        });
        let start = Instant::now();
        for blocks in grouped(&blocks) {
            let is_late = || start.elapsed() > PREPARE_LIMIT || requested_stop().is_some();
            let is_cancelled = || is_interrupted() || is_late();
            if is_cancelled() || self.fetch(blocks, &is_cancelled).is_err() {
                return;
            }
        }
    }
}

/// Returns the blocks that have bytes of a range.
fn blocks_of(range: &Range<usize>) -> Range<u64> {
    if range.is_empty() {
        return 0..0;
    }
    (range.start / BLOCK_BYTES) as u64..range.end.div_ceil(BLOCK_BYTES) as u64
}

/// Divides blocks, whose numbers ascend, into groups that are fetched together.
fn grouped(blocks: &[u64]) -> impl Iterator<Item = &[u64]> {
    let mut rest = blocks;
    std::iter::from_fn(move || {
        let mut segments = 0;
        let mut last = None;
        let end = rest.iter().take(FETCHED_BLOCKS).position(|block| {
            let number = Some(block / BLOCKS);
            segments += usize::from(last != number);
            last = number;
            segments > FETCHED_SEGMENTS
        });
        let (group, others) = rest.split_at(end.unwrap_or(rest.len().min(FETCHED_BLOCKS)));
        rest = others;
        (!group.is_empty()).then_some(group)
    })
}

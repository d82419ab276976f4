//! Hashes of data, which identify a file of any size.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::iter;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::{DataError, TokenFile};

/// Bytes at the start of the data that are hashed together.
pub const START_BYTES: usize = 1 << 20;

/// Length of a block, in bytes or ids.
pub const BLOCK_BYTES: usize = 1 << 18;

/// Largest number of blocks: all of a file of 64 MiB, and blocks of a longer one at equal distances, so that a terabyte
/// is recognized without being read.
pub const MOST_BLOCKS: usize = 256;

/// Length of a block of one of several files, in ids.
const FILE_BLOCK: usize = 1 << 16;

/// Hashes of data, in hexadecimal.
#[derive(Debug)]
pub struct Fingerprints {
    /// XXH3 of the first mebibyte.
    pub start: String,
    /// XXH3 of blocks of all of the data.
    pub blocks: String,
    /// The same of the ids, each of them as 32 bits: of as many ids as bytes.
    pub ids: [String; 2],
}

impl Fingerprints {
    /// Hashes the data.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn new(file: &TokenFile) -> Result<Fingerprints, DataError> {
        let text = |hash: u64| format!("{hash:016x}");
        let len = file.n_bytes();
        let mut first_ids = vec![0; file.len().min(START_BYTES)];
        let first = iter::once(0..first_ids.len());
        let width = file.encoding().width();
        let of_bytes = blocks_of(len).map(|block| block.start / width..block.end.div_ceil(width));
        file.prepare(first.chain(of_bytes));
        file.decode(0, &mut first_ids)?;
        Ok(Fingerprints {
            start: text(xxh3_64(&file.part(0..len.min(START_BYTES))?)),
            blocks: text(hash_blocks(len, |block| file.part(block))?),
            ids: [
                text(xxh3_64(bytemuck::cast_slice(&first_ids))),
                text(hash_id_blocks(file, blocks_of(file.len()))?),
            ],
        })
    }
}

/// Returns the XXH3 of [blocks](blocks_of) of `len` bytes.
pub fn hash_blocks<'a, E>(
    len: usize,
    read: impl Fn(Range<usize>) -> Result<Cow<'a, [u8]>, E>,
) -> Result<u64, E> {
    let mut hash = Xxh3::new();
    for block in blocks_of(len) {
        hash.update(&read(block)?);
    }
    Ok(hash.digest())
}

/// Returns the XXH3 of [blocks](blocks_of) of a file of `len` bytes.
pub fn hash_file_blocks(file: &File, len: u64) -> io::Result<u64> {
    hash_blocks(len as usize, |block| {
        let mut bytes = vec![0; block.len()];
        file.read_exact_at(&mut bytes, block.start as u64)?;
        Ok(bytes.into())
    })
}

/// Returns the XXH3 of at most `most` blocks of the ids of one of several files, in hexadecimal.
///
/// # Errors
/// A file that cannot be read.
pub fn ids_fingerprint(file: &TokenFile, most: usize) -> Result<String, DataError> {
    let hash = hash_id_blocks(file, blocks_at(file.len(), FILE_BLOCK, most))?;
    Ok(format!("{hash:016x}"))
}

/// Returns the XXH3 of blocks of ids.
fn hash_id_blocks(
    file: &TokenFile,
    blocks: impl Iterator<Item = Range<usize>> + Clone,
) -> Result<u64, DataError> {
    file.prepare(blocks.clone());
    let (mut hash, mut ids) = (Xxh3::new(), Vec::new());
    for block in blocks {
        ids.resize(block.len(), 0);
        file.decode(block.start, &mut ids)?;
        hash.update(bytemuck::cast_slice(&ids));
    }
    Ok(hash.digest())
}

/// Returns blocks of `len` elements at equal distances, the last one at the end; all elements, if the blocks cover
/// them.
fn blocks_of(len: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    blocks_at(len, BLOCK_BYTES, MOST_BLOCKS)
}

/// Returns at most `most` blocks of `block_len` among `len` elements, at equal distances, the last one at the end.
fn blocks_at(
    len: usize,
    block_len: usize,
    most: usize,
) -> impl Iterator<Item = Range<usize>> + Clone {
    let blocks = most.min(len.div_ceil(block_len));
    let last_start = len.saturating_sub(block_len);
    (0..blocks).map(move |block| {
        let start = (last_start as u128 * block as u128 / (blocks - 1).max(1) as u128) as usize;
        start..len.min(start + block_len)
    })
}

//! Hashes of data, which identify a file of any size.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::TokenFile;

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
    pub fn new(file: &TokenFile) -> Fingerprints {
        let text = |hash: u64| format!("{hash:016x}");
        let bytes = file.bytes();
        let mut first_ids = vec![0; file.len().min(START_BYTES)];
        file.decode(0, &mut first_ids);
        Fingerprints {
            start: text(xxh3_64(&bytes[..bytes.len().min(START_BYTES)])),
            blocks: text(hash_blocks(bytes)),
            ids: [
                text(xxh3_64(bytemuck::cast_slice(&first_ids))),
                text(hash_id_blocks(file, blocks_of(file.len()))),
            ],
        }
    }
}

/// Returns the XXH3 of [blocks](blocks_of) of bytes.
pub fn hash_blocks(bytes: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    blocks_of(bytes.len()).for_each(|block| hash.update(&bytes[block]));
    hash.digest()
}

/// Returns the XXH3 of [blocks](blocks_of) of a file of `len` bytes.
pub fn hash_file_blocks(file: &File, len: u64) -> io::Result<u64> {
    let (mut hash, mut bytes) = (Xxh3::new(), Vec::new());
    for block in blocks_of(len as usize) {
        bytes.resize(block.len(), 0);
        file.read_exact_at(&mut bytes, block.start as u64)?;
        hash.update(&bytes);
    }
    Ok(hash.digest())
}

/// Returns the XXH3 of at most `most` blocks of the ids of one of several files, in hexadecimal.
pub fn ids_fingerprint(file: &TokenFile, most: usize) -> String {
    format!("{:016x}", hash_id_blocks(file, blocks_at(file.len(), FILE_BLOCK, most)))
}

/// Returns the XXH3 of blocks of ids.
fn hash_id_blocks(file: &TokenFile, blocks: impl Iterator<Item = Range<usize>>) -> u64 {
    let (mut hash, mut ids) = (Xxh3::new(), Vec::new());
    for block in blocks {
        ids.resize(block.len(), 0);
        file.decode(block.start, &mut ids);
        hash.update(bytemuck::cast_slice(&ids));
    }
    hash.digest()
}

/// Returns blocks of `len` elements at equal distances, the last one at the end; all elements, if the blocks cover
/// them.
fn blocks_of(len: usize) -> impl Iterator<Item = Range<usize>> {
    blocks_at(len, BLOCK_BYTES, MOST_BLOCKS)
}

/// Returns at most `most` blocks of `block_len` among `len` elements, at equal distances, the last one at the end.
fn blocks_at(len: usize, block_len: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let blocks = most.min(len.div_ceil(block_len));
    let last_start = len.saturating_sub(block_len);
    (0..blocks).map(move |block| {
        let start = (last_start as u128 * block as u128 / (blocks - 1).max(1) as u128) as usize;
        start..len.min(start + block_len)
    })
}

//! Hashes of data, by which a file of any size is recognized.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Bytes at the start of the data that are hashed together.
pub const START_BYTES: usize = 1 << 20;

/// Length of a block.
pub const BLOCK_BYTES: usize = 1 << 18;

/// Largest number of blocks: all of a file of 64 MiB, and blocks of a longer one at equal distances, so that a terabyte
/// is recognized without being read.
pub const MOST_BLOCKS: usize = 256;

/// Hashes of data, in hexadecimal.
#[derive(Debug)]
pub struct Fingerprints {
    /// XXH3 of the first mebibyte.
    pub start: String,
    /// XXH3 of blocks of all of the data.
    pub blocks: String,
}

impl Fingerprints {
    /// Hashes the data.
    pub fn new(bytes: &[u8]) -> Fingerprints {
        let text = |hash: u64| format!("{hash:016x}");
        Fingerprints {
            start: text(xxh3_64(&bytes[..bytes.len().min(START_BYTES)])),
            blocks: text(hash_blocks(bytes)),
        }
    }
}

/// Returns the XXH3 of blocks at equal distances, the last one at the end; of all bytes, if the blocks cover them.
pub fn hash_blocks(bytes: &[u8]) -> u64 {
    let blocks = MOST_BLOCKS.min(bytes.len().div_ceil(BLOCK_BYTES));
    let last_start = bytes.len().saturating_sub(BLOCK_BYTES);
    let mut hash = Xxh3::new();
    for block in 0..blocks {
        let start = (last_start as u128 * block as u128 / (blocks - 1).max(1) as u128) as usize;
        hash.update(&bytes[start..bytes.len().min(start + BLOCK_BYTES)]);
    }
    hash.digest()
}

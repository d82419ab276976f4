//! Hashes of the parts of a file, so that a part can be verified without reading the others.

use xxhash_rust::xxh3::Xxh3;

use super::PartHashes;

/// Hexadecimal digits of a hash.
const DIGITS: usize = 16;

/// Hashes the parts of a file, in passing.
pub struct PartHasher {
    bytes: u64,
    /// Hash of the part that has begun, and its bytes so far.
    hash: Box<Xxh3>,
    filled: u64,
    found: String,
}

impl PartHasher {
    /// Begins a file in parts of so many bytes.
    pub fn new(bytes: u64) -> PartHasher {
        PartHasher { bytes, hash: Box::default(), filled: 0, found: String::new() }
    }

    /// Adds the next bytes of the file.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (own, rest) = bytes.split_at(bytes.len().min((self.bytes - self.filled) as usize));
            self.hash.update(own);
            self.filled += own.len() as u64;
            if self.filled == self.bytes {
                self.end_part();
            }
            bytes = rest;
        }
    }

    /// Returns the hashes of all parts.
    pub fn finish(mut self) -> PartHashes {
        if self.filled > 0 {
            self.end_part();
        }
        PartHashes { bytes: self.bytes, xxh3: self.found }
    }

    fn end_part(&mut self) {
        self.found += &text_of(self.hash.digest());
        self.hash.reset();
        self.filled = 0;
    }
}

impl PartHashes {
    /// Returns true if there is a hash for each part of a file of so many bytes.
    pub(super) fn fits(&self, file_bytes: u64) -> bool {
        self.bytes > 0
            && self.xxh3.len() as u64 == file_bytes.div_ceil(self.bytes) * DIGITS as u64
            && self.xxh3.is_ascii()
    }

    /// Returns true if `content` is that of the part `index`.
    #[cfg(any(test, feature = "remote"))]
    pub(super) fn matches(&self, index: usize, content: &[u8]) -> bool {
        let own = self.xxh3.get(index * DIGITS..(index + 1) * DIGITS);
        own.is_some_and(|own| own == text_of(xxhash_rust::xxh3::xxh3_64(content)))
    }
}

fn text_of(hash: u64) -> String {
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_its_hash() {
        let content: Vec<u8> = (0..10).collect();
        for step in [1, 3, 4, 10] {
            let mut hasher = PartHasher::new(4);
            content.chunks(step).for_each(|piece| hasher.update(piece));
            let hashes = hasher.finish();
            assert!(hashes.fits(10) && hashes.fits(9) && !hashes.fits(8) && !hashes.fits(13));
            for (index, part) in content.chunks(4).enumerate() {
                assert!(hashes.matches(index, part));
                assert!(!hashes.matches(index, &part[1..]) && !hashes.matches(index + 1, part));
            }
        }
        assert_eq!(PartHasher::new(4).finish().xxh3, "");
    }
}

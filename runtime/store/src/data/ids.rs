//! Token ids as files hold them, and their width.

use std::path::Path;

/// Encoding of the tokens of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Text: every byte is a token.
    Bytes,
    /// Little-endian 16-bit ids.
    U16,
    /// Little-endian 32-bit ids.
    U32,
}

impl Encoding {
    /// Set if tokens are the bytes of a text.
    pub const fn is_text(self) -> bool {
        matches!(self, Encoding::Bytes)
    }

    /// The narrowest width for ids below `vocab`.
    pub const fn for_vocab(vocab: usize) -> Encoding {
        if vocab <= 1 << 16 { Encoding::U16 } else { Encoding::U32 }
    }

    /// Returns the encoding for a new file of ids below `vocab`: that of its name if it suffices, else the narrowest.
    pub fn for_file(path: &Path, vocab: usize) -> Encoding {
        let narrowest = Encoding::for_vocab(vocab);
        match Encoding::of_name(path) {
            Some(named) if named.width() > narrowest.width() => named,
            _ => narrowest,
        }
    }

    /// Returns the encoding that the name of a token file states; `None` for a name without a width.
    pub fn of_name(path: &Path) -> Option<Encoding> {
        let name = path.file_name()?.as_encoded_bytes();
        if name.ends_with(b".u16.bin") {
            Some(Encoding::U16)
        } else {
            name.ends_with(b".u32.bin").then_some(Encoding::U32)
        }
    }

    /// Returns the encoding of a `.bin` file; see [`TokenFile::open`](super::TokenFile::open).
    pub(super) fn of_file(path: &Path, bytes: &[u8], vocab: usize) -> Encoding {
        if let Some(named) = Encoding::of_name(path) {
            return named;
        }
        if vocab > 1 << 16 {
            return Encoding::U32;
        }
        if !bytes.len().is_multiple_of(4) {
            return Encoding::U16;
        }
        if Encoding::U16.alternates_with_zero(bytes) { Encoding::U32 } else { Encoding::U16 }
    }

    /// Returns true if every second id is 0, and not all are: such ids are probably twice as wide.
    pub(super) fn alternates_with_zero(self, bytes: &[u8]) -> bool {
        // A megabyte is far more than chance could fill with ids that alternate with 0.
        let sample = &bytes[..bytes.len().min(1 << 20)];
        let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        let mut pairs = sample.chunks_exact(2 * self.width());
        pairs.all(|pair| is_zero(&pair[self.width()..])) && !is_zero(sample)
    }

    /// Bytes of one token.
    pub const fn width(self) -> usize {
        match self {
            Encoding::Bytes => 1,
            Encoding::U16 => 2,
            Encoding::U32 => 4,
        }
    }
}

/// Token ids as files hold them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ids {
    pub(super) bytes: Vec<u8>,
    pub(super) encoding: Encoding,
}

impl Ids {
    /// Creates an empty list for ids below `vocab`: 16 bits wide if that suffices, else 32.
    pub fn below(vocab: usize) -> Ids {
        Ids::new(Encoding::for_vocab(vocab))
    }

    /// Creates an empty list of ids.
    pub fn new(encoding: Encoding) -> Ids {
        Ids { bytes: Vec::new(), encoding }
    }

    /// Adds `ids`, truncated to the width of the list: callers check the largest id.
    pub fn extend(&mut self, ids: &[u32]) {
        let width = self.encoding.width();
        for id in ids {
            self.bytes.extend_from_slice(&id.to_le_bytes()[..width]);
        }
    }

    /// The ids, little-endian, without gaps.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes all ids, and keeps the capacity.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }
}

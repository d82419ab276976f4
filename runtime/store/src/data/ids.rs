//! Token ids as files hold them, and their width.

use std::path::Path;

use serde::{Serialize, Serializer};

/// Encoding of the tokens of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Text: every byte is a token.
    Bytes,
    /// Little-endian 16-bit ids.
    U16,
    /// Little-endian 32-bit ids.
    U32,
    /// 8-bit ids, of a format that states it.
    U8,
    /// Little-endian 64-bit ids, of a format that states it.
    U64,
    /// Little-endian signed 16-bit ids, of a format that states it; none may be negative.
    I16,
    /// Little-endian signed 32-bit ids, of a format that states it; none may be negative.
    I32,
    /// Little-endian signed 64-bit ids, of a format that states it; none may be negative.
    I64,
}

impl Serialize for Encoding {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.dtype())
    }
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
        let name = path.file_name()?.as_encoded_bytes().to_ascii_lowercase();
        if name.ends_with(b".u16.bin") {
            Some(Encoding::U16)
        } else {
            name.ends_with(b".u32.bin").then_some(Encoding::U32)
        }
    }

    /// Returns the encoding with the name `u16`, and so on.
    pub fn of_dtype(name: &str) -> Option<Encoding> {
        use Encoding::*;
        [U8, U16, U32, U64, I16, I32, I64].into_iter().find(|encoding| encoding.dtype() == name)
    }

    /// The name of the numbers in the file, such as `u16`.
    pub const fn dtype(self) -> &'static str {
        match self {
            Encoding::Bytes => "bytes",
            Encoding::U8 => "u8",
            Encoding::U16 => "u16",
            Encoding::U32 => "u32",
            Encoding::U64 => "u64",
            Encoding::I16 => "i16",
            Encoding::I32 => "i32",
            Encoding::I64 => "i64",
        }
    }

    /// Returns the number at the beginning of `bytes`, also one that is no token id.
    pub(super) fn number(self, bytes: &[u8]) -> i64 {
        let mut word = [0; 8];
        let width = self.width();
        word[..width].copy_from_slice(&bytes[..width]);
        let is_negative = bytes[width - 1] >= 0x80;
        match self {
            Encoding::U64 if is_negative => return i64::MAX,
            Encoding::I16 | Encoding::I32 if is_negative => word[width..].fill(0xff),
            _ => {}
        }
        i64::from_le_bytes(word)
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
            Encoding::Bytes | Encoding::U8 => 1,
            Encoding::U16 | Encoding::I16 => 2,
            Encoding::U32 | Encoding::I32 => 4,
            Encoding::U64 | Encoding::I64 => 8,
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

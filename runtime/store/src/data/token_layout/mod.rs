//! The place of the token ids in a file, and their width, by its header or its record.

mod llm_c;
mod megatron;
mod npy;
mod raw;

use std::ops::Range;
use std::path::Path;

pub use megatron::{has_index, tokens_of_index};

use super::{DataError, DataFormat, Encoding, FileProblem, TokenizerRecord};

/// Token ids within the bytes of a file.
#[derive(Debug)]
pub struct TokenLayout {
    pub encoding: Encoding,
    /// The bytes of the ids.
    pub bytes: Range<usize>,
    /// The index after the last token of each document, in order, if the file has an index.
    pub document_ends: Option<Vec<usize>>,
    /// The tokenizer that has made the ids, if it is recorded.
    pub tokenizer: Option<TokenizerRecord>,
}

/// Bytes at the beginning of a file that its layout is determined from.
pub const HEAD_BYTES: usize = 1 << 20;

/// A file of token ids that is opened.
pub struct OpenedTokens<'a> {
    pub path: &'a Path,
    /// The first bytes, at most [`HEAD_BYTES`].
    pub head: &'a [u8],
    /// Length of the file in bytes.
    pub len: usize,
    /// The model's vocabulary size.
    pub vocab: usize,
    /// The width of the ids, if it was given.
    pub dtype: Option<Encoding>,
}

impl TokenLayout {
    /// Determines the layout of a file of token ids.
    ///
    /// # Errors
    /// A header or an index that does not fit the file, another width than the one that was given, and ids of a kind
    /// that is not read.
    pub fn new(format: &DataFormat, file: &OpenedTokens<'_>) -> Result<TokenLayout, DataError> {
        let layout = match format {
            DataFormat::Npy => npy::layout(file).map_err(|problem| file.error(problem))?,
            DataFormat::LlmC => llm_c::layout(file).map_err(|problem| file.error(problem))?,
            DataFormat::Megatron { index } => megatron::layout(index, file.len)?,
            _ => return raw::layout(file),
        };
        match file.dtype {
            Some(dtype) if dtype != layout.encoding => {
                let stated = layout.encoding.dtype();
                Err(file.error(format!("it states {stated} ids; leave --token-dtype out")))
            }
            _ => Ok(layout),
        }
    }

    /// Creates the layout of `len` bytes of text, each of them a token.
    pub fn of_text(len: usize) -> TokenLayout {
        let tokenizer = Some(TokenizerRecord::bytes());
        TokenLayout { tokenizer, ..TokenLayout::without_index(Encoding::Bytes, 0..len) }
    }

    /// Creates the layout of the ids in these bytes of a file, without documents and tokenizer.
    pub fn without_index(encoding: Encoding, bytes: Range<usize>) -> TokenLayout {
        TokenLayout { encoding, bytes, document_ends: None, tokenizer: None }
    }
}

impl OpenedTokens<'_> {
    fn error(&self, problem: String) -> DataError {
        let name = self.path.display().to_string();
        DataError::File(FileProblem { name, problem })
    }
}

/// Reads the little-endian number at `at`.
fn number_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use crate::data::TokenFile;

    /// Opens a file with these bytes, and returns the ids.
    pub fn ids_of(name: &str, bytes: &[u8], vocab: usize) -> Result<Vec<u32>, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let file = TokenFile::open(&path, vocab).map_err(|error| error.to_string())?;
        let mut ids = vec![0; file.len()];
        file.read(0, &mut ids).map_err(|error| error.to_string())?;
        Ok(ids)
    }
}

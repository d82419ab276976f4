//! Records beside token files: number and width of the tokens, and their tokenizer.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::place::read_if_any;
use super::{DataError, FileProblem, TokenizerRecord};

/// The content of a token file, in `FILE.bin.json` beside it, as `tokenize` writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokensRecord {
    /// Number of tokens.
    pub tokens: u64,
    /// The width of the ids: `u16` or `u32`.
    pub dtype: String,
    /// The vocabulary size of the tokenizer: every id is below it.
    pub vocab: usize,
    /// The tokenizer.
    pub tokenizer: TokenizerRecord,
}

impl TokensRecord {
    /// Returns the path of the record of the token file `path`.
    pub fn path_beside(path: &Path) -> PathBuf {
        let mut name = OsString::from(path);
        name.push(".json");
        name.into()
    }

    /// Reads the record of the token file `path`; `None` if there is none, or another JSON file in its place.
    ///
    /// # Errors
    /// A record that is damaged.
    pub fn beside(path: &Path) -> Result<Option<TokensRecord>, DataError> {
        let own = TokensRecord::path_beside(path);
        let content = match read_if_any(&own) {
            Ok(Some(content)) => content,
            Ok(None) => return Ok(None),
            Err(source) => return Err(DataError::Io { path: own, source }),
        };
        let read = || {
            let value: Value = serde_json::from_slice(&content)?;
            let is_record = value.get("tokens").is_some() && value.get("tokenizer").is_some();
            is_record.then(|| serde_json::from_value(value)).transpose()
        };
        read().map_err(|error: serde_json::Error| {
            let name = own.display().to_string();
            let problem = format!(
                "it is no record of tokens: {error}; tokenize the text again, or remove it"
            );
            DataError::File(FileProblem { name, problem })
        })
    }
}

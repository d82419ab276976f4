//! The tokenizer of a run, as checkpoints and records of tokens name it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Name and hash of a tokenizer, kept in checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenizerRecord {
    /// The path of its file, which may move, or `bytes`.
    pub name: String,
    /// XXH3 of its file, in hexadecimal; `None` for bytes.
    pub xxh3: Option<String>,
}

impl TokenizerRecord {
    /// The record of the tokenizer that makes every byte a token.
    pub fn bytes() -> TokenizerRecord {
        TokenizerRecord { name: "bytes".to_owned(), xxh3: None }
    }

    /// Returns true if both tokenizers have the same content.
    pub fn is_same(&self, other: &TokenizerRecord) -> bool {
        self.xxh3 == other.xxh3
    }
}

impl fmt::Display for TokenizerRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.xxh3 {
            Some(hash) => write!(f, "{} (XXH3 {hash})", self.name),
            None => f.write_str(&self.name),
        }
    }
}

//! What can be wrong with training data.

use std::path::PathBuf;

/// Why data cannot be trained on; each message says which file and what to do.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A file or folder could not be read.
    #[error("--data: cannot read {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file has no content.
    #[error("--data: {name} is empty")]
    Empty {
        /// The file.
        name: String,
    },
    /// The length of a token file is not a whole number of tokens.
    #[error(
        "--data: {name} has {bytes} bytes, which is not a whole number of {width}-byte tokens; the file is truncated, \
         or not made of u{} tokens",
        width * 8
    )]
    Torn {
        /// The file.
        name: String,
        /// Its length in bytes.
        bytes: usize,
        /// Bytes of a token.
        width: usize,
    },
    /// Text by bytes needs an id for every byte.
    #[error(
        "--data: {name} is text, read byte by byte, which needs a vocabulary of at least 256; the model has {vocab}. \
         Give a .bin file of token ids, or a model with a larger vocabulary"
    )]
    SmallVocabulary {
        /// The file.
        name: String,
        /// The model's vocabulary size.
        vocab: usize,
    },
    /// There is not even one sample.
    #[error(
        "--data: {name} has {tokens} tokens, but one sample of --seq {seq} needs {} (seq + 1); give more data or a \
         shorter --seq",
        seq + 1
    )]
    TooShort {
        /// The file.
        name: String,
        /// Its length in tokens.
        tokens: usize,
        /// Tokens of a sample.
        seq: usize,
    },
    /// A token that the model does not know.
    #[error(
        "--data: {name} has token id {id} at position {position}, beyond the vocabulary of {vocab}; the file was made \
         by another tokenizer, or has another width than the u{} it was read as",
        width * 8
    )]
    UnknownToken {
        /// The file.
        name: String,
        /// The token.
        id: u32,
        /// Its index in the file, in tokens from 0.
        position: usize,
        /// The model's vocabulary size.
        vocab: usize,
        /// Bytes of a token.
        width: usize,
    },
    /// A resumed run would not read on where it stopped.
    #[error(
        "the run cannot go on where it stopped with other data than that of --resume:{}",
        differences.iter().map(|line| format!("\n  - {line}")).collect::<String>()
    )]
    OtherPosition {
        /// Each setting that differs.
        differences: Vec<String>,
    },
    /// A corpus of folders in which there is nothing to read.
    #[error("found no .md or .rs file under {}; give --data FILE", roots.join(", "))]
    NoText {
        /// Where was searched.
        roots: Vec<String>,
    },
}

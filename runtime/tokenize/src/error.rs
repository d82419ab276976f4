//! Errors of text, tokenizers, and token files that are written.

use std::path::PathBuf;

use meshwright_store::data::{DataError, FileProblem};

/// Reason why text cannot be tokenized, with file and fix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizeError {
    /// The tokens cannot be trained on.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A file is no text, or a document of it cannot be read.
    #[error("{0}")]
    File(FileProblem),
    /// The tokens of a text do not fit in memory.
    #[error(
        "--data: {name} has more than {gibibytes} GiB of token ids, which are held in memory; tokenize it to a file \
         first, which is mapped: tokenize --tokenizer FILE.json {name} -o out.bin"
    )]
    TooLong {
        /// The file.
        name: String,
        /// The limit.
        gibibytes: usize,
    },
    /// A text could not be read.
    #[error("cannot read {name}: {source}")]
    Read {
        /// The file.
        name: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The tokens could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is not a tokenizer.
    #[error(
        "--tokenizer: {} cannot be used: {problem}; use the tokenizer.json of a Hugging Face model, or `bytes`",
        path.display()
    )]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// This program has no reader for tokenizer files.
    #[error(
        "--tokenizer: {} needs the feature `tokenizers`: build with cargo run --release --features tokenizers .., or \
         use --tokenizer bytes",
        path.display()
    )]
    NotBuilt {
        /// The file.
        path: PathBuf,
    },
    /// Tokenizers other than bytes read text only.
    #[error(
        "{name} is not UTF-8 text, at byte {position}; convert it (iconv -t UTF-8), or use --tokenizer bytes"
    )]
    NotUtf8 {
        /// The file.
        name: String,
        /// Index of the first wrong byte.
        position: u64,
    },
    /// The tokenizer has no token for some of the text.
    #[error(
        "{tokenizer} cannot tokenize {name} around byte {position}: {problem}; use a tokenizer that has a token for \
         every text (byte-level, with byte fallback, or with an unknown token)"
    )]
    Encode {
        /// The tokenizer.
        tokenizer: String,
        /// The file.
        name: String,
        /// Index of the first byte of the piece.
        position: u64,
        /// The error of the tokenizer.
        problem: String,
    },
    /// The text has a token that the model does not have.
    #[error(
        "--data: {name} has the token `{token}` of {tokenizer} at byte {position}, whose id is {id}, but the \
         vocabulary of the model is {vocab}; remove it from the text, or use the tokenizer that belongs to the model"
    )]
    BeyondVocabulary {
        /// The tokenizer.
        tokenizer: String,
        /// The file.
        name: String,
        /// Index of the first byte of the token.
        position: u64,
        /// The token.
        token: String,
        /// The id.
        id: u32,
        /// The model's vocabulary size.
        vocab: usize,
    },
    /// The tokens of a text are random.
    #[error(
        "--tokenizer: {tokenizer} tokenizes at random (\"{setting}\" is {value} in its \"model\"), so that a text \
         would have other tokens in each run; set it to null in a copy of the file"
    )]
    Random {
        /// The tokenizer.
        tokenizer: String,
        /// The key of its file.
        setting: &'static str,
        /// The value.
        value: f64,
    },
    /// 16 bits do not hold every id.
    #[error(
        "--dtype: u16 holds ids up to 65535, but {tokenizer} has ids up to {largest}; use --dtype u32"
    )]
    TooWide {
        /// The tokenizer.
        tokenizer: String,
        /// The largest id.
        largest: u32,
    },
    /// A token that is to begin or end documents does not exist.
    #[error("{flag}: {tokenizer} has no token `{token}`; {hint}")]
    NoSuchToken {
        /// The flag.
        flag: &'static str,
        /// The tokenizer.
        tokenizer: String,
        /// The token.
        token: String,
        /// Tokens that exist.
        hint: String,
    },
    /// A number that is a token, and the id of another one.
    #[error(
        "{flag}: {tokenizer} has the token `{token}` with id {token_id}, and another one with id {id}; write \
         id={token_id} or id={id}"
    )]
    AmbiguousToken {
        /// The flag.
        flag: &'static str,
        /// The tokenizer.
        tokenizer: String,
        /// The number.
        token: String,
        /// The id of the token that is spelled so.
        token_id: u32,
        /// The number as an id.
        id: u32,
    },
    /// The folder of the output does not exist.
    #[error("-o: there is no folder {}; create it, or name another file", folder.display())]
    NoFolder {
        /// The folder.
        folder: PathBuf,
    },
    /// The name of the output would not be taken for token ids.
    #[error("-o: {} must end in .bin, by which --data recognizes raw token ids", path.display())]
    OutputName {
        /// The file.
        path: PathBuf,
    },
    /// The name of the output states fewer bits than the ids have.
    #[error(
        "-o: the name of {} states ids of {bits} bits, but {tokenizer} has ids up to {largest}; name it {}",
        path.display(),
        renamed.display()
    )]
    NarrowName {
        /// The file.
        path: PathBuf,
        /// Bits of an id, by the name.
        bits: usize,
        /// The tokenizer.
        tokenizer: String,
        /// The largest id.
        largest: u32,
        /// A name that states the width of the ids.
        renamed: PathBuf,
    },
    /// The name of the output states another width than its ids have.
    #[error(
        "-o: the name of {} states ids of {bits} bits, and --data would read it so, but --dtype is {dtype}; name it \
         {}, or use --dtype u{bits}",
        path.display(),
        renamed.display()
    )]
    OtherWidth {
        /// The file.
        path: PathBuf,
        /// Bits of an id, by the name.
        bits: usize,
        /// The width that was given.
        dtype: &'static str,
        /// A name that states this width.
        renamed: PathBuf,
    },
    /// The output would replace an input.
    #[error("-o: {} is also an input; use another output file", path.display())]
    OutputIsInput {
        /// The file.
        path: PathBuf,
    },
    /// Text that a tokenizer turns into no tokens.
    #[error(
        "--tokenizer: {tokenizer} makes no tokens of the {bytes} bytes of {name}; use the tokenizer.json of a Hugging \
         Face model, or `bytes`"
    )]
    NoTokens {
        /// The tokenizer.
        tokenizer: String,
        /// The files.
        name: String,
        /// Bytes of the text.
        bytes: u64,
    },
    /// Empty input.
    #[error("nothing to tokenize: {name} has no text")]
    Empty {
        /// The files.
        name: String,
    },
}

impl TokenizeError {
    /// Creates the error of `bytes` of text, possibly none, without any token.
    pub(super) fn without_tokens(tokenizer: &str, name: String, bytes: u64) -> TokenizeError {
        match bytes {
            0 => TokenizeError::Empty { name },
            _ => TokenizeError::NoTokens { tokenizer: tokenizer.to_owned(), name, bytes },
        }
    }
}

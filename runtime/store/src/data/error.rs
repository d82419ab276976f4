//! Errors of training data.

use std::path::PathBuf;

use super::{Encoding, TokenizerRecord};

/// A file that is not data of the expected form, with the next step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {problem}")]
pub struct FileProblem {
    /// The file, and the line or row if there is one.
    pub name: String,
    /// The problem and its fix.
    pub problem: String,
}

/// Reason why data cannot be trained on, with file and fix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A file or folder could not be read.
    #[error("--data: cannot read {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A device or a socket.
    #[error("--data: {} is {kind}; write the data to a file, and name that", path.display())]
    SpecialFile {
        /// The path.
        path: PathBuf,
        /// The kind of the file, with its article.
        kind: &'static str,
    },
    /// The file has no content.
    #[error("--data: {name} is empty")]
    Empty {
        /// The file.
        name: String,
    },
    /// The file has no data, or not in this form.
    #[error("--data: {0}")]
    File(FileProblem),
    /// Sources that cannot be mixed.
    #[error("--data: {0}")]
    Mixture(String),
    /// A row that the program could not make.
    #[error("row {row} of {name}: {problem}")]
    MadeRow {
        /// The name of the source.
        name: String,
        /// The row.
        row: u64,
        /// The reason.
        problem: String,
    },
    /// An example that a task cannot make a row of.
    #[error("--data: example {number} of {name}: {problem}")]
    Example {
        /// The name of the source.
        name: String,
        /// The number of the example, from 0.
        number: u64,
        /// The reason.
        problem: String,
    },
    /// Ids that can be read with either width.
    #[error(
        "--data: {name} can be read as u16 and as u32 ids; state the width by --token-dtype u16 or u32, or name it \
         .u16.bin or .u32.bin"
    )]
    UnknownWidth {
        /// The file.
        name: String,
    },
    /// The length of a token file is not a whole number of tokens.
    #[error(
        "--data: {name} has {bytes} bytes, which is not a whole number of {width}-byte tokens; the file is truncated, \
         or not made of {} tokens",
        encoding.dtype(), width = encoding.width()
    )]
    Torn {
        /// The file.
        name: String,
        /// Length of the file in bytes.
        bytes: usize,
        /// The encoding that it was read by.
        encoding: Encoding,
    },
    /// A file was cut off while it was trained on.
    #[error(
        "--data: {name} had {bytes} bytes when the run began and has {now} now; leave the file as it is while it is \
         trained on"
    )]
    Shortened {
        /// The file.
        name: String,
        /// Length of the file in bytes when it was opened.
        bytes: usize,
        /// Length of the file in bytes.
        now: u64,
    },
    /// An object in object storage was replaced while it was trained on.
    #[error(
        "--data: {name} was replaced since the run began; leave the object as it is while it is trained on"
    )]
    Replaced {
        /// The object.
        name: String,
    },
    /// The folder for parts of data in object storage.
    #[error("--data-cache: cannot write to {}: {source}", path.display())]
    Cache {
        /// The folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Text by bytes needs an id for every byte.
    #[error(
        "--data: {name} is text, read byte by byte, which needs a vocabulary of at least 256; the model has {vocab}. \
         Use a file of token ids, or a model with a larger --vocab"
    )]
    SmallVocabulary {
        /// The file.
        name: String,
        /// The model's vocabulary size.
        vocab: usize,
    },
    /// The data has no complete sample.
    #[error(
        "--data: {name} has {tokens} tokens, but one sample of --seq {seq} needs {} (seq + 1); give more data or a \
         shorter --seq",
        seq + 1
    )]
    TooShort {
        /// The file.
        name: String,
        /// Length of the file in tokens.
        tokens: usize,
        /// Tokens of a sample.
        seq: usize,
    },
    /// No document ends in the data.
    #[error(
        "--documents: token {end} does not occur in the first {searched} tokens of {name}, so no document ends there; \
         give the token that ends documents (`tokenize --eos` writes one), or leave --documents out"
    )]
    NoDocuments {
        /// The file.
        name: String,
        /// The token that ends documents.
        end: u32,
        /// Tokens that were searched.
        searched: usize,
    },
    /// Documents without targets of their own.
    #[error(
        "--mask-borders: all documents in the first {searched} tokens of {name} consist of one token, usually {end}, \
         so every target would be ignored; give --documents the token that ends documents, other data, or leave \
         --mask-borders out"
    )]
    NoTargets {
        /// The file.
        name: String,
        /// The token that ends documents.
        end: u32,
        /// Tokens that were searched.
        searched: usize,
    },
    /// A document-end token beyond the vocabulary.
    #[error("--documents: token {end} is beyond the vocabulary of {vocab}")]
    UnknownEnd {
        /// The token that ends documents.
        end: u32,
        /// The model's vocabulary size.
        vocab: usize,
    },
    /// A token beyond the vocabulary.
    #[error(
        "--data: {name} has token id {id} at position {position}, beyond the vocabulary of {vocab}; the file was made \
         by {}",
        match made_by {
            Some(tokenizer) => format!("{tokenizer}: a new model needs a --vocab of its size, another one its tokens"),
            None => format!(
                "another tokenizer, or has another width than the {} it was read as",
                encoding.dtype()
            ),
        }
    )]
    UnknownToken {
        /// The file.
        name: String,
        /// The token, which may be negative or have more than 32 bits.
        id: i64,
        /// Index of the token in the file, from 0.
        position: usize,
        /// The model's vocabulary size.
        vocab: usize,
        /// The encoding that it was read by.
        encoding: Encoding,
        /// The tokenizer that has made the tokens, if it is known.
        made_by: Option<Box<TokenizerRecord>>,
    },
    /// A token file whose ids are twice as wide as they were read.
    #[error(
        "--data: every second id of {name} is 0 if they are read as u{}, so they are probably u{}; {}",
        width * 8,
        width * 16,
        if *width == 2 {
            "name it .u32.bin, or give --token-dtype u32"
        } else {
            "write them as u16 or u32, such as by numpy's astype(\"uint32\")"
        }
    )]
    OtherWidth {
        /// The file.
        name: String,
        /// Bytes of a token as it was read.
        width: usize,
    },
    /// A tokenizer with more tokens than the model has.
    #[error(
        "--tokenizer: {tokenizer} has token ids up to {}, but the vocabulary of the model is {vocab}; a new model \
         needs --vocab {ids}",
        ids - 1
    )]
    WideTokenizer {
        /// The tokenizer.
        tokenizer: String,
        /// The vocabulary size.
        ids: usize,
        /// The model's vocabulary size.
        vocab: usize,
    },
    /// A thread that reads ahead could not be started.
    #[error("the thread that reads batches ahead could not be started: {0}")]
    Thread(std::io::Error),
    /// Ranks that have to train on the same samples do not.
    #[error(
        "the first step is wrong: {} share part {data_index} of every batch, but read {what}; {cause}",
        listed(ranks)
    )]
    RanksDiffer {
        /// One rank, and those that differ from it.
        ranks: Vec<usize>,
        /// Their data index.
        data_index: usize,
        /// The differences.
        what: &'static str,
        /// Probable cause.
        cause: &'static str,
    },
    /// Samples are trained on more than once in a step.
    #[error(
        "the first step is wrong: {samples} of its samples are read more than once, on {}; the ranks computed a wrong \
         part of the batch, or the sampler returned one sample for several rows",
        listed(ranks)
    )]
    SameSamples {
        /// One rank of every part with such a sample.
        ranks: Vec<usize>,
        /// Number of samples that are read more than once.
        samples: usize,
    },
    /// Samples of a step are not trained on.
    #[error(
        "the first step is wrong: the ranks read {held} of {batch} samples, as {parts} parts of the batch; ranks of \
         different parts have computed the same part"
    )]
    MissingSamples {
        /// Number of samples that are read.
        held: usize,
        /// Number of samples in the step.
        batch: usize,
        /// Number of different data indices.
        parts: usize,
    },
    /// A resumed run would not continue at the position where it stopped.
    #[error(
        "--resume: the data differ from the data of the saved run, so the run cannot continue at its position; use the \
         data and the settings of the saved run, or go on with these by --new-data:{}",
        differences.iter().map(|line| format!("\n  - {line}")).collect::<String>()
    )]
    OtherPosition {
        /// Each setting that differs.
        differences: Vec<String>,
    },
    /// A corpus of folders with nothing to read.
    #[error("found no .md or .rs file under {}; give --data FILE", roots.join(", "))]
    NoText {
        /// The searched paths.
        roots: Vec<String>,
    },
}

/// `rank 3`, `ranks 0, 1 and 4`.
fn listed(ranks: &[usize]) -> String {
    let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    match ranks.split_last() {
        Some((last, [])) => format!("rank {last}"),
        Some((last, rest)) => format!("ranks {} and {last}", rest.join(", ")),
        None => "no rank".to_owned(),
    }
}

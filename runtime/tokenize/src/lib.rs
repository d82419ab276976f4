//! Tokenizers of Meshwright: text to token ids and back.
//!
//! A text is cut into documents, a long document into pieces, at places that follow from the text alone
//! ([`TextDocuments`]); pieces are tokenized on all cores and written in order. So the ids do not depend on the
//! machine, and memory is bounded however large a file is.

mod encode;
mod error;
#[cfg_attr(not(feature = "tokenizers"), path = "no_file.rs")]
mod file;
mod marked;
mod marked_text;
mod output_name;
mod pieces;
mod progress;
mod source;
#[cfg(all(test, feature = "tokenizers"))]
mod test_tokenizer;
mod tokenizer;
mod unfinished_file;
mod write;

pub use encode::{Encoded, tokenize_input};
pub use error::TokenizeError;
pub use marked_text::{MarkedText, TextToMark};
pub use pieces::TextDocuments;
pub use progress::TokenizeProgress;
pub use tokenizer::Tokenizer;
pub use write::{Tokenized, tokenize_files};

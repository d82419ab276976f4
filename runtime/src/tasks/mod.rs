//! Tasks of the models of the library.

mod seq2seq;

pub use seq2seq::{Seq2Seq, Seq2SeqFlags, SpeechFlags, SpeechToText};

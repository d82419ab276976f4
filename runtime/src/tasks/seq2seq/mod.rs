//! Tasks of encoder-decoders: texts from texts and from speech.

mod speech;
mod targets;
mod task;
mod texts;

pub use speech::{SpeechFlags, SpeechToText};
pub use task::{Seq2Seq, Seq2SeqFlags};

//! Frequencies of rotary position embeddings, as numbers: the base, the part of a head that rotates, and the scaling
//! that extends a model to longer sequences.
//!
//! A pair of elements `i` of a head is rotated by `position * frequency[i]` (Su et al., "RoFormer", 2021). The
//! [layer](crate::nn::Rope) makes tables of them, and `config.json` of a Hugging Face folder states the parameters.

mod frequencies;
mod long_rope;
mod parameters;
mod ranges;
mod scaling;

pub use frequencies::RotaryFrequencies;
pub use long_rope::LongRopeScaling;
pub use parameters::RopeParameters;
pub use scaling::{Llama3Scaling, RopeScaling, YarnScaling};

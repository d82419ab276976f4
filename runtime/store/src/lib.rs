//! What a run reads and writes: data, checkpoints and Hugging Face folders.

pub mod checkpoint;
pub mod data;
pub mod state_dict;

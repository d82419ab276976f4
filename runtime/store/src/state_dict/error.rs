//! Errors between a model and its stored tensors.

use crate::checkpoint::CheckpointError;

/// Reason why parameters cannot be loaded or stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateDictError {
    /// A checkpoint or a Hugging Face folder.
    #[error("{0}")]
    Checkpoint(#[from] CheckpointError),
    /// A model whose table of Hugging Face names does not fit its parameters.
    #[error("{0}")]
    Mapping(String),
}

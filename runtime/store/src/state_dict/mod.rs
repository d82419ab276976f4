//! State dicts: which tensors a checkpoint holds of a run, and which a Hugging Face folder holds of a model.
//!
//! - [`TrainingState`] maps parameters, optimizer state and moving average to the shards of a checkpoint;
//!   `StateSnapshot` is a copy of these shards.
//! - [`HfMapping`] maps the parameters of a declared model to Hugging Face tensors, by the model's table of
//!   [`HfName`]s: names, shapes, transposed layouts, fused tensors and tensors of stacked weights follow from it.

mod error;
mod hf_mapping;
mod hf_name;
mod hf_weights;
pub(crate) mod replica_state;
pub(crate) mod snapshot;
mod tensor_dim;
mod tensor_slot;
pub(crate) mod training_state;

#[cfg(test)]
mod stacked_tests;

pub use error::StateDictError;
pub use hf_mapping::HfMapping;
pub use hf_name::HfName;
pub use hf_weights::{export_hf, import_hf};
pub use training_state::{TrainingState, TrainingStateMut};

//! Automatic differentiation: untyped values, the tape of recorded operations, and its backward.

mod activation_checkpointing;
mod auxiliary_loss;
mod backward;
mod contraction;
mod function;
mod grad_mode;
mod halo;
mod matmul;
mod microbatch_pass;
mod offloading;
mod origin;
mod param_use;
mod pointwise;
mod saved;
mod segment_data;
mod tape;
pub(crate) mod tensor_parallel;
mod token_ids;
mod value;

pub use activation_checkpointing::{CheckpointedSegment, SavePolicy};
pub use microbatch_pass::{DeferredWeightGradients, WeightGradients};
pub use segment_data::SegmentData;

pub(crate) use activation_checkpointing::recompute;
pub(crate) use backward::run_backward;
pub(crate) use contraction::{Contraction, Reads, contract, gradient_axes};
pub(crate) use function::{
    AlwaysRecomputed, Operands, Operation, OperationBackward, OperationForward, OperationInput,
    OperationParam, SavedInput, apply,
};
pub use function::{Arity, Count, SavedResults};
pub(crate) use halo::Halo;
pub(crate) use meshwright_mesh::__internal::HaloSide;
pub(crate) use microbatch_pass::PartIdentities;
pub use microbatch_pass::{MicrobatchPass, PartGradients};
pub(crate) use origin::Origin;
pub(crate) use param_use::ParamUse;
pub(crate) use pointwise::{Binary, Pointwise, Unary};
pub(crate) use segment_data::at_stage_boundary;
pub use segment_data::{Part, PartKind, at_boundary, data_of_parts, parts_of};
pub use tape::LossFactor;
pub(crate) use tape::{NodeId, TapeGradients};
pub use token_ids::TokenIds;
pub(crate) use value::Value;

//! Tensors whose types state the global tensor and its split; losses, metrics and gradients.

mod along_dim;
mod auxiliary_loss;
mod block_by_index;
mod broadcast;
pub(crate) mod captured_input;
mod choice_bias;
mod combine;
mod combine_partials;
mod compare;
mod contract;
mod counting;
mod covers;
pub(crate) mod cuda_graphs;
mod diagonal;
mod documents;
mod documents_along;
mod dot;
mod draw_key;
mod elementwise;
mod forward_pass;
pub mod function;
mod global_indices;
mod gradient_accumulation;
mod gradients;
mod in_flight;
mod indexed;
mod key_ranges;
mod loss;
mod loss_refusals;
mod loss_totals;
mod mask;
mod metric;
mod never_applies;
mod objective;
mod operators;
mod partial;
mod position_mask;
mod random;
mod reduce;
mod row_losses;
mod row_range;
mod scalar;
mod segment_data;
mod shapes;
mod sharing;
mod shift;
mod softmax;
mod step_count;
mod terms;
mod tokens;
mod typed;
mod weights;

pub use along_dim::Across;
pub use combine::{
    Accumulate, Combine, Keeps, Moved, Product, Quotient, Scale, TakenByValue, TakesValues,
    Trailing,
};
pub use compare::{Compared, Relation};
pub use contract::{Contract, ContractionWeight, FromValue};
pub use counting::{CountsEach, CountsStep, OfBatch, OfStep, Pooled};
pub use covers::Covers;
pub use documents::Documents;
pub use forward_pass::{ActivationGradients, ForwardPass};
pub use gradient_accumulation::{MicroBatchLoss, PassLoss};
pub use gradients::{Accumulating, Applicable, Gradients, Pending, Reduced, Summed, Unsummed};
pub use in_flight::{Arrived, Awaited, InFlight, UsedBeforeWait};
pub use indexed::Index;
pub use loss::{AddsToLoss, Loss};
pub use loss_refusals::{CombinesGradients, HasSign, Negated, ScalesLoss, ScalesObjective};
pub use mask::{ByShape, Mask, MaskOf};
pub use metric::{CombinesMetrics, HasShape, HasValue, MadeOfTensor, Mean, Metric};
pub use objective::{AddsToObjective, Objective, OnlyUnits, WeightedSum};
pub use operators::{AfterParam, ParamAsTensor, Right};
pub use partial::{NotAValue, Partial, StillPartial};
pub use position_mask::PositionMask;
pub use reduce::SumState;
pub use scalar::OtherNumber;
pub use shapes::{CutNames, PartSizes};
pub use sharing::SharedBetweenRanks;
pub use softmax::LastLocal;
pub use step_count::StepCount;

pub use tokens::{Targets, Tokens};
pub use typed::{Operand, Param, Tensor};
pub use weights::Weights;

pub use crate::autograd::{
    CheckpointedSegment, DeferredWeightGradients, SavePolicy, SegmentData, WeightGradients,
};
#[doc(hidden)]
pub use crate::autograd::{Part, PartKind};
pub(crate) use crate::autograd::{at_boundary, at_stage_boundary};
pub use crate::context::{Checks, Rank, Scope, Settings, ZeroStage, scope};
pub(crate) use crate::fsdp::InitialValues;
pub use crate::fsdp::{Init, ParamRef, Unit, UnitOwners, UnitSlice};
pub use meshwright_mesh::Extent;

pub(crate) use choice_bias::{forget_expert_loads, note_expert_loads, update_choice_biases};
pub(crate) use combine::add_param;
pub(crate) use draw_key::draw_key;
pub(crate) use row_losses::RowLosses;
pub(crate) use typed::note_number;

pub(crate) use crate::autograd::tensor_parallel::{enter_region, enter_regions, leave_region};
pub(crate) use crate::autograd::{
    AlwaysRecomputed, Arity, Binary, Contraction, Count, Halo, HaloSide, Operands, Operation,
    OperationBackward, OperationForward, OperationInput, OperationParam, ParamUse, Reads,
    SavedInput, TapeGradients, Unary, Value, apply, contract, gradient_axes, recompute,
};
pub(crate) use crate::context::scope::{SpanStart, begin_function, set_backward_location};
pub(crate) use crate::context::{
    DocumentIds, KeyBlock, RoutedRows, RunningStage, StagedForwardId, VisibleRows, alloc_like, fail,
};
pub(crate) use crate::fsdp::{InBackward, ParamDims, Role, UnitTraining};
pub(crate) use meshwright_mesh::__internal::{check_sizes, shape_name};

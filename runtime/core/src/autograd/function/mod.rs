//! Operations with a gradient: an operation defines the kernels of its forward and its backward; [`apply`] runs and
//! records it.
//!
//! [`apply`] computes the inputs, unshards the parameters, takes the results that a checkpointed segment has saved,
//! records the operation on the tape, saves its operands for backward, and counts the uses of parameters.

mod apply;
mod arity;
mod operands;
mod operation;
mod saved_results;

pub(crate) use apply::apply;
pub use arity::{Arity, Count};
pub(crate) use operands::{Operands, OperationInput, OperationParam, SavedInput};
pub(crate) use operation::{Operation, OperationBackward, OperationForward};
pub(crate) use saved_results::AlwaysRecomputed;
pub use saved_results::SavedResults;

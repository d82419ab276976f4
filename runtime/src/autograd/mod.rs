//! Automatic differentiation: untyped values, the tape of what was computed, and its backward.

mod activation_checkpointing;
mod epilogue;
mod matmul;
mod offloading;
mod pointwise;
mod tape;
pub(crate) mod tensor_parallel;
mod value;

pub use activation_checkpointing::{Keep, Region, RegionData};

pub(crate) use activation_checkpointing::{Regions, recompute};
pub(crate) use matmul::Product;
pub(crate) use offloading::Offloading;
pub(crate) use pointwise::{Binary, Pointwise, Unary};
pub(crate) use tape::{Gradients, NodeId, Tape, run_backward};
pub(crate) use tensor_parallel as region;
pub(crate) use value::{InBackward, ParamUse, Saved, Value, copy_to};

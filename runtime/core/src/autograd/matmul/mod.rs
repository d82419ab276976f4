//! Matmul of a tensor and a weight, with epilogue fusion: bias, GELU and bias gradient.

mod backward;
mod epilogue;
mod forward;

pub(super) use backward::MatmulDims;
pub(super) use epilogue::{FusableEpilogue, fusable_epilogues, replace_by_leaves};
pub(super) use forward::{BiasEpilogue, Matmul};

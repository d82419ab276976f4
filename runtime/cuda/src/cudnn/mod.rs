//! Fused attention by cuDNN.
//!
//! The library is loaded at run time and used through its graph API: it receives the operations of attention as an
//! operation graph, recognizes the pattern, and generates one kernel. Graphs are built and tested as plain data, then
//! lowered to the library's descriptors and compiled into an [`ExecutionPlan`].
//!
//! - `graph`, `attention_graph`, `mask`, `attention_sizes`: operation graphs as data, the graphs of attention, and
//!   their sizes.
//! - `library`, `descriptor`, `target`: the library, its handles and objects, and the device of a plan.
//! - `lower`, `plan`: the descriptors of a graph, the choice of an engine, and execution.
//! - `attention`, `options`, `limits`, `workspace`, `cache`: [`CudnnAttention`], which the backend calls.

mod attention;
mod attention_graph;
mod attention_sizes;
mod cache;
mod descriptor;
mod graph;
mod library;
mod limits;
mod lower;
mod mask;
mod options;
mod plan;
mod target;
mod workspace;

#[cfg(test)]
mod tests;

pub use attention::CudnnAttention;
pub use attention_graph::AttentionPass;
pub use attention_sizes::{BandMask, CudnnAttentionSizes};
pub use graph::{
    ElementType, GraphOperand, GraphOperation, GraphScalar, GraphTensor, OperationGraph, Pointwise,
    Reduction, TensorDims, TensorId, TensorStorage,
};
pub use library::{CudnnHandle, cudnn_present};
pub use lower::OPERAND_ALIGNMENT;
pub use options::{CudnnHost, CudnnOptions, ScratchLimit};
pub use plan::{ExecutionPlan, PlanArguments};
pub use target::{DeviceDescription, PlanTarget, TargetDevice};

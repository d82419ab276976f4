//! Fused attention by cuDNN.
//!
//! The library is loaded at run time and used through its graph API: it receives the operations of attention as an
//! operation graph, recognizes the pattern, and generates one kernel. Graphs are built and tested as plain data, then
//! lowered to the library's descriptors and compiled into an [`ExecutionPlan`].
//!
//! - `graph`, `attention_graph`: operation graphs as data, and those of attention.
//! - `target`, `descriptor`: the library, its handles and objects, and the device of a plan.
//! - `lower`, `plan`: descriptors of a graph, the choice of an engine, and execution.
//! - `attention`, `options`, `workspace`, `cache`: [`CudnnAttention`], which the backend calls.

mod attention;
mod backward;
mod cache;
mod descriptor;
mod engines;
mod forward;
mod graph;
mod host;
mod library;
mod limits;
mod lower;
mod options;
mod plan;
mod ready;
mod scratch;
mod sizes;
mod target;

#[cfg(test)]
mod tests;

pub use attention::CudnnAttention;
pub use graph::{
    Element, Four, Graph, Home, Operand, Operation, Pointwise, Reduction, Scalar, Tensor, TensorId,
};
pub use host::Host;
pub use library::cudnn_present;
pub use lower::ALIGNMENT;
pub use options::{CudnnOptions, ScratchLimit};
pub use plan::{Arguments, Plan};
pub use sizes::{Pass, Sizes};
pub use target::{Handle, Place, Properties, Target};

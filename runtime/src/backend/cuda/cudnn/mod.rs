//! Scaled dot-product attention by cuDNN.
//!
//! The library is found at run time and asked through its graph API. It is described what attention computes, operation by
//! operation ([`Graph`]), recognises the pattern, and generates one kernel for it; nothing is compiled against the library.
//! Graphs are built as data first, and checked as such; then they become descriptors of the library, and these a [`Plan`].
//!
//! - `graph`, `sizes`, `forward`, `backward`: what is computed, as data.
//! - `library`, `descriptor`, `target`: the library, its objects, and the device that plans are for.
//! - `lower`, `engines`, `plan`: from data to what can be executed.
//! - `cache`, `scratch`, `ready`, `host`, `limits`, `options`, `attention`: [`CudnnAttention`], which the backend calls.
//!
//! The library is opened as all others are ([`native`](super::native)).

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

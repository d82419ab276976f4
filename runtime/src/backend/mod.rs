//! Where numbers live and are worked on: buffers, their accounting, and the kernels behind one trait.

mod block;
mod buffer;
pub mod cpu;
mod dtype;
mod expr;
mod ops;
mod shapes;
mod view;

pub use buffer::{Buffer, Category, MemoryMeter};
pub use dtype::{DType, Element};
pub use expr::{Dropout, Expr, Node};
pub use ops::Backend;
pub use shapes::{AdamStep, AttentionShape, BlockIndex, Gemm, LeafGrad, RopeShape};
pub use view::{View, ViewMut};

//! Where numbers live and are worked on: buffers, their accounting, and the kernels behind one trait.

mod block;
mod buffer;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod device;
mod dtype;
mod expr;
mod meter;
mod ops;
mod out_of_memory;
mod recording;
mod shapes;
mod update_expr;
mod view;

pub use buffer::{Buffer, Category};
pub use device::{Device, DeviceFailure, FreeObserver, Moment, Queue, RowPart, Runs};
pub use dtype::{DType, Element};
pub use expr::{Dropout, Expr, Node};
pub use meter::MemoryMeter;
pub use ops::Backend;
pub(crate) use out_of_memory::Bytes;
pub use out_of_memory::OutOfMemory;
pub use recording::{Place, RecordedWork, Recording, Recordings};
pub use shapes::{
    AdamStep, AttentionShape, BlockIndex, Gemm, GemmEnding, LeafGrad, ReduceOp, RopeShape, SgdStep,
};
pub use update_expr::{ScalarFunction, UpdateExpr, UpdateNode, UpdateOperands};
pub use view::{View, ViewMut};

//! Where numbers live and are worked on: buffers, their accounting, and the kernels behind one trait.

mod block;
mod buffer;
mod bytes;
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
mod view;

pub use buffer::{Buffer, Category};
pub(crate) use bytes::Bytes;
pub use device::{Device, DeviceFailure, FreeObserver, Moment, Queue, RowPart, Runs};
pub use dtype::{DType, Element};
pub use expr::{Dropout, Expr, Node};
pub use meter::MemoryMeter;
pub use ops::Backend;
pub use out_of_memory::OutOfMemory;
pub use recording::{Place, RecordedWork, Recording, Recordings};
pub use shapes::{
    AdamStep, AttentionShape, BlockIndex, Gemm, GemmEnding, LeafGrad, ReduceOp, RopeShape, SgdStep,
};
pub use view::{View, ViewMut};

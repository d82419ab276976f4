//! Where numbers live and are worked on: buffers, their accounting, and the kernels behind one trait.

mod buffer;
pub mod cpu;
mod dtype;
mod view;

pub use buffer::{Buffer, Category, MemoryMeter};
pub use dtype::{DType, Element};
pub use view::{View, ViewMut};

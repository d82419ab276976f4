//! GPUs.

mod backend;
mod driver;
mod gpu;
mod kernels;
mod memory;
pub mod native;
mod ops;
mod staging;

pub use backend::CudaBackend;
pub use driver::*;
pub use gpu::Gpu;
pub use kernels::{COMMON, SOURCES};
pub use ops::{loss, routing};

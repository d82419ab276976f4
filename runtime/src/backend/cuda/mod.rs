//! GPUs.

mod backend;
pub mod cudnn;
mod driver;
mod gpu;
mod kernels;
mod memory;
pub mod native;
mod ops;

pub use backend::CudaBackend;
pub use driver::*;
pub use gpu::Gpu;
pub use kernels::attention::Tiles as AttentionTiles;
pub use kernels::{COMMON, SOURCES};
pub use ops::{loss, routing};

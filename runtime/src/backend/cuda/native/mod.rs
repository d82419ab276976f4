//! A GPU by the vendor's libraries, which are looked for at run time.

mod api;
mod cache;
mod compile;
mod compiler;
mod context;
mod devices;
mod driver;
mod libraries;
mod matmul;
mod memory;
mod search;

pub use api::{
    Api, CublasLtApi, CudnnApi, DriverApi, NcclApi, NvrtcApi, cublaslt, cudnn, driver, nccl, nvrtc,
};
pub use cache::Cache;
pub use context::devices;
pub use devices::{Peak, peak_flops, peak_of};
pub use driver::{Attention, NativeDriver, NativeOptions};
pub use libraries::{Library, Loaded, Version};
pub use search::Search;

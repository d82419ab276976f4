//! A GPU driver over the vendor's libraries, which are loaded at run time.

mod api;
mod attention;
mod cache;
mod compile;
mod compiler;
mod context;
mod devices;
mod driver;
mod kernel_check;
mod libraries;
mod matmul;
mod memory;
mod probe;
mod search;

pub use api::{
    Api, CublasLtApi, CudnnApi, DriverApi, Heuristic, NcclApi, NvrtcApi, Status, cublaslt, cudnn,
    driver, nccl, nvrtc,
};
pub use cache::Cache;
pub use compiler::compile_into_cache;
pub use context::devices;
pub use devices::{Peak, peak_flops, peak_of};
pub use driver::{NativeDriver, NativeOptions};
pub use kernel_check::{
    Checked, Kernel, Problem, TIME_LIMIT, Usage, check_kernels, generated_sources,
};
pub use libraries::{Library, Loaded, Version};
pub use probe::{Found, Probe, cuda_available, libraries, probe};
pub use search::Search;

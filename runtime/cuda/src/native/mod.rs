//! A GPU driver over the vendor's libraries, which are loaded at run time.

mod api;
mod attention;
mod compile;
mod compiler;
mod context;
mod disk_cache;
mod driver;
mod hardware_queues;
mod installation;
mod libraries;
mod library_search;
mod matmul;
mod memory;
mod modules;
mod peak_throughput;
mod streams;
mod vendor_library;
mod workspace_accounting;

pub use api::{
    CublasLtApi, CudnnApi, DriverApi, Heuristic, NcclApi, NvrtcApi, Status, cublaslt, cudnn,
    driver, nccl, nvrtc,
};
pub use compile::{CompiledCode, compile, compiled_text};
pub use compiler::compile_into_cache;
pub use context::devices;
pub use disk_cache::{CacheKey, DiskCache};
pub use driver::{NativeDriver, NativeOptions};
pub use hardware_queues::{HARDWARE_QUEUES, request_hardware_queues};
pub use installation::{CudaInstallation, FoundLibrary, cuda_available, libraries, probe};
pub use libraries::{Api, Loaded};
pub use library_search::LibrarySearch;
pub use peak_throughput::{PeakThroughput, peak_flops, peak_of};
pub use vendor_library::{VendorLibrary, Version};

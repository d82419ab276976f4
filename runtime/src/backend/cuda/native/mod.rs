//! A GPU by the vendor's libraries, which are looked for at run time.

mod api;
mod cache;
mod compile;
mod context;
mod devices;
mod libraries;
mod search;

pub use api::{
    Api, CublasLtApi, CudnnApi, DriverApi, NcclApi, NvrtcApi, cublaslt, cudnn, driver, nccl, nvrtc,
};
pub use libraries::{Library, Loaded, Version};
pub use search::Search;

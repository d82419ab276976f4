//! The CUDA backend: kernels, streams and CUDA graphs of one rank's GPU, above the trait [`Driver`].

mod algorithm_choices;
mod attention_use;
pub mod autotune;
mod backend;
mod capture_state;
mod cuda_graph;
pub mod cudnn;
mod driver;
mod fused_shape;
mod gpu;
mod kernels;
mod matmul;
mod memory;
pub mod native;
mod null_driver;
mod ops;
mod profile;
mod staging;

pub use algorithm_choices::{AlgorithmChoices, AttentionChoice, ChoiceOrigin, MatMulChoice};
use attention_use::{AttentionImplementation, PassDirection};
pub use backend::CudaBackend;
pub use driver::{
    CallKind, DeviceProperties, Driver, DriverCalls, DriverError, Event, FusedAttention, GpuCall,
    Graph, Grid, KernelFunction, KernelModule, KernelSource, Reply, Stream,
};
pub use fused_shape::{AttentionGradients, AttentionOperands, FusedShape};
pub use gpu::GpuContext;
pub use kernels::attention::{
    AttentionTiles, BIAS as ATTENTION_BIAS, BIAS_DROPOUT as ATTENTION_BIAS_DROPOUT,
    PLAIN as PLAIN_ATTENTION, PLAIN_DROPOUT as PLAIN_ATTENTION_DROPOUT,
    Variant as AttentionVariant,
};
pub use kernels::{COMMON, SOURCES};
pub use matmul::{MatMul, MatMulBatch, MatMulEpilogue, MatMulOperands};
pub use null_driver::{NullAttention, NullDriver};
pub use profile::{PROFILE_VARIABLE, Profile, ProfiledDriver};

//! Buffers and their allocator, the interface of devices, and the kernels behind the trait [`Backend`].

mod allocator;
mod block;
mod bytes;
mod category;
mod cuda_graph;
mod device;
mod dry_run;
mod dtype;
mod expr;
mod leaf_strides;
#[doc(hidden)]
pub mod math;
mod observed;
pub mod ops;
mod out_of_memory;
mod reduce_op;
#[doc(hidden)]
pub mod unary_function;
mod update_expr;
mod view;

pub use allocator::{AllocationObserver, Buffer, CachingAllocator};
use bytes::Bytes;
pub use category::Category;
pub use cuda_graph::{CapturedGraph, GraphBuffer, GraphPool};
pub use device::{
    Device, DeviceEvent, DeviceFailure, DeviceGraph, FreeObserver, MemoryCache, RowPart, Runs,
    StreamKind,
};
pub use dry_run::DryRunBackend;
pub use dtype::{DType, Element};
pub use expr::{Comparison, DropoutMask, Expr, Node};
pub use leaf_strides::{LeafPositions, LeafStrides};
pub use observed::{Kernel, KernelObserver, KernelOp};
pub use ops::{
    AdamGroup, AdamStep, AttentionOps, AttentionShape, Backend, Band, BatchLoop, BatchedGemm,
    BlockCopy, BlockIndex, CausalConvShape, ConvolutionOps, CopyDim, CopyOps, CudaKernel,
    DimFunction, DimPositions, DimReduction, DistanceBias, ElementwiseOps, EmbeddingOps,
    ExpertGroups, Gemm, GemmEpilogue, GlobalPositions, HeadOps, IndexOps, IndexedDim, KernelArg,
    KeyRanges, LaunchGrid, LeafGrad, LossOps, MAX_EXPERT_GROUPS, MAX_TOP_K, MatmulOps, MiddleDim,
    MiddleDimOps, NormOps, OptimizerOps, PositionRange, RandomOps, ReductionOps, ResidualSum,
    RopeLayout, RopeOps, RopeShape, RouterOptions, RouterScore, RoutingOps, RoutingShape,
    SequenceLayout, SgdStep, SoftmaxOps, StateRounding, StridedCopy, UnfoldShape, WeightDropout,
};
pub use out_of_memory::OutOfMemory;
pub use reduce_op::ReduceOp;
pub use unary_function::UnaryFunction;
pub use update_expr::{ScalarFunction, UpdateExpr, UpdateNode, UpdateOperands};
pub use view::{View, ViewMut};

/// Items for the other crates of Meshwright. Not part of the API.
#[doc(hidden)]
pub mod __internal {
    pub use crate::block::DRY_RUN_BLOCK;
    pub use crate::bytes::Bytes;
    pub use crate::observed::ObservedBackend;
    pub use crate::ops::optim::groups_by_rounding;
    pub use crate::ops::state_rounding::check_rounding;
}

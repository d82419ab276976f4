//! The kernel interface: one trait per family of operations, and [`Backend`], which is all of them.
//!
//! A kernel is written in three places: its method and operands in the family's file here, next to its implementation
//! in dry runs, which does nothing, and an implementation each in the files of the same family under `cpu` and
//! `cuda/ops`.

pub mod attention;
pub mod convolution;
pub mod copy;
pub mod cuda_kernel;
pub mod elementwise;
pub mod embedding;
pub mod head;
pub mod index;
pub mod loss;
pub mod matmul;
pub mod middle_dim;
pub mod norm;
pub mod optim;
pub mod random;
pub mod reduce;
pub mod rope;
pub mod routing;
pub mod softmax;
pub(crate) mod state_rounding;
pub mod strided_copy;
pub mod weight_dropout;

use std::sync::Arc;

use super::{Device, DryRunBackend};

pub use attention::{AttentionOps, AttentionShape, Band, DistanceBias, KeyRanges, SequenceLayout};
pub use convolution::{CausalConvShape, ConvolutionOps, PositionRange, UnfoldShape};
pub use copy::{BlockCopy, CopyOps};
pub use cuda_kernel::{CudaKernel, KernelArg, LaunchGrid};
pub use elementwise::{ElementwiseOps, LeafGrad};
pub use embedding::EmbeddingOps;
pub use head::HeadOps;
pub use index::{IndexOps, IndexedDim};
pub use loss::LossOps;
pub use matmul::{BatchLoop, BatchedGemm, Gemm, GemmEpilogue, MatmulOps};
pub use middle_dim::{DimFunction, DimPositions, DimReduction, MiddleDimOps};
pub use norm::{NormOps, ResidualSum};
pub use optim::{AdamGroup, AdamStep, OptimizerOps, SgdStep};
pub use random::{BlockIndex, RandomOps};
pub use reduce::{MiddleDim, ReductionOps};
pub use rope::{RopeLayout, RopeOps, RopeShape};
pub use routing::{
    ExpertGroups, MAX_EXPERT_GROUPS, MAX_TOP_K, RouterOptions, RouterScore, RoutingOps,
    RoutingShape,
};
pub use softmax::SoftmaxOps;
pub use state_rounding::StateRounding;
pub use strided_copy::{CopyDim, StridedCopy};
pub use weight_dropout::{GlobalPositions, WeightDropout};

/// The kernels of one rank on one device.
///
/// Matrices are row-major and contiguous; `rows` of an operand without explicit sizes is its length divided by the row
/// length. "Written" operands need not be initialized; "accumulated" operands are added to. Results do not depend on
/// timing: the same call on the same backend gives the same bits.
///
/// # Element types
/// Operands are of one type `T`, f32 or bf16, unless a kernel states otherwise. Whatever `T` is, arithmetic is in f32:
/// operands are widened when they are read, and results are rounded once, to the nearest value with ties to even; NaN
/// stays NaN. Statistics, and gradients of parameters that are summed over rows, are always f32.
///
/// # Panics
/// Kernels panic when operands do not fit the given sizes or dtypes: a bug of the caller, since the sizes of a model
/// are checked when it is built.
pub trait Backend:
    MatmulOps
    + ElementwiseOps
    + CopyOps
    + ReductionOps
    + MiddleDimOps
    + NormOps
    + RopeOps
    + AttentionOps
    + EmbeddingOps
    + IndexOps
    + SoftmaxOps
    + LossOps
    + HeadOps
    + OptimizerOps
    + RandomOps
    + RoutingOps
    + ConvolutionOps
    + Send
    + Sync
{
    /// Returns the device whose memory the kernels use; `None` for host memory.
    fn device(&self) -> Option<Arc<dyn Device>> {
        None
    }

    /// Returns true if kernels do nothing and buffers have no memory; see [`DryRunBackend`].
    fn is_dry_run(&self) -> bool {
        false
    }

    /// Launches a kernel from CUDA source: [`CudaKernel::launch`], which checks the arguments first.
    ///
    /// # Safety
    /// As [`CudaKernel::launch`]; the arguments have the types of the kernel's parameters.
    ///
    /// # Panics
    /// If the backend has no CUDA device.
    #[track_caller]
    unsafe fn launch_cuda_kernel(&self, kernel: &CudaKernel, _: LaunchGrid, _: &[KernelArg<'_>]) {
        panic!("CUDA kernel `{}` is launched on a backend without a CUDA device", kernel.name());
    }

    /// Returns the number of host threads that kernels run on.
    fn threads(&self) -> usize;
    /// Returns the floating-point operations executed so far by matmuls and attention, two per multiply-add.
    fn flops(&self) -> u64;
    /// Adds the operations of a replayed CUDA graph to [`flops`](Self::flops).
    fn count_flops(&self, flops: u64);
}

impl Backend for DryRunBackend {
    fn device(&self) -> Option<Arc<dyn Device>> {
        DryRunBackend::device(self)
    }

    fn is_dry_run(&self) -> bool {
        true
    }

    unsafe fn launch_cuda_kernel(&self, _: &CudaKernel, _: LaunchGrid, _: &[KernelArg<'_>]) {}

    fn threads(&self) -> usize {
        1
    }

    fn flops(&self) -> u64 {
        0
    }

    fn count_flops(&self, _: u64) {}
}

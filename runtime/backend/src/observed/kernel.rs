//! Kernels as values: operation, dims, floating-point operations and bytes.

use std::fmt;

use crate::DType;

/// A launched kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// The operation.
    pub op: KernelOp,
    /// `[m, n, k, epilogues]` of a matmul, `[m, n, k, matmuls]` of a batched one, `[queries, keys, heads of all
    /// samples, head_dim]` of attention, `[rows, cols, 0, 0]` of operations on rows; else the number of elements in the
    /// first one.
    pub dims: [u32; 4],
    /// Dtype of the operand that the operation is about: the first operand of a matmul, queries, the input of others.
    pub dtype: DType,
    /// Floating-point operations of matmuls and attention, two per multiply-add; 0 of other kernels.
    pub flops: u64,
    /// Bytes that the operation has to read: each operand once, and results that it adds to.
    pub read: u64,
    /// Bytes that the operation has to write.
    pub written: u64,
}

/// An observer of the kernels of a rank, on the thread of the rank.
pub trait KernelObserver: Send + Sync {
    /// Observes a kernel of the present launch, before it or after it.
    fn kernel_launched(&self, kernel: &Kernel);

    /// Observes that a launch begins, whose kernels follow.
    fn launch_begins(&self) {}

    /// Observes that all kernels of the launch are submitted; on the CPU, they are complete. A launch of several
    /// kernels ends once for each of them.
    fn launch_ends(&self) {}
}

/// A launch, which ends when it is dropped.
pub(super) struct Launch<'a>(&'a dyn KernelObserver);

impl<'a> Launch<'a> {
    pub fn begin(observer: &'a dyn KernelObserver) -> Launch<'a> {
        observer.launch_begins();
        Launch(observer)
    }
}

impl Drop for Launch<'_> {
    fn drop(&mut self) {
        self.0.launch_ends();
    }
}

macro_rules! kernel_ops {
    ($($variant:ident => $name:literal,)+) => {
        /// The operation of a [`Kernel`]: a method of a [`Backend`](crate::Backend), or of a
        /// [`Device`](crate::Device).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)]
        pub enum KernelOp {
            $($variant,)+
        }

        impl KernelOp {
            /// All operations.
            pub const ALL: &[KernelOp] = &[$(KernelOp::$variant,)+];

            /// Returns the name of the method.
            pub const fn name(self) -> &'static str {
                match self {
                    $(KernelOp::$variant => $name,)+
                }
            }
        }
    };
}

kernel_ops! {
    Gemm => "gemm",
    GroupedGemm => "grouped_gemm",
    BatchedMatmul => "batched_gemm",
    AttentionKernel => "attention",
    AttentionBackward => "attention_backward",
    MergeAttention => "merge_attention",
    Map => "map",
    MapBackward => "map_backward",
    CopyBlocks => "copy_blocks",
    CopyStrided => "copy_strided",
    Cast => "cast",
    AddInPlace => "add_assign",
    Lerp => "lerp",
    Fill => "fill",
    ScaleKernel => "scale",
    SumDim => "sum_dim",
    BroadcastDim => "broadcast_dim",
    SumSquares => "sum_squares",
    ReduceDim => "reduce_dim",
    MapDim => "map_dim",
    FindInDim => "find_in_dim",
    PlaceInDim => "place_in_dim",
    RmsNormKernel => "rms_norm",
    RmsNormBackward => "rms_norm_backward",
    LayerNormKernel => "layer_norm",
    LayerNormBackward => "layer_norm_backward",
    RopeKernel => "rope",
    EmbeddingKernel => "embedding",
    EmbeddingBackward => "embedding_backward",
    TakeElements => "take_elements",
    AddElements => "add_elements",
    Largest => "largest",
    RunningSum => "running_sum",
    Softmax => "softmax",
    SoftmaxBackward => "softmax_backward",
    RowMax => "row_max",
    ExpSum => "exp_sum",
    MaxExpSum => "max_exp_sum",
    CrossEntropyLoss => "cross_entropy_loss",
    CrossEntropyGrad => "cross_entropy_grad",
    CrossEntropyKernel => "cross_entropy",
    FinishLogits => "finish_logits",
    SmoothedGrad => "smoothed_grad",
    Adamw => "adamw",
    SgdKernel => "sgd",
    ApplyUpdate => "apply_update",
    RoundState => "round_state",
    FillNormal => "fill_normal",
    FillUniform => "fill_uniform",
    TopK => "top_k",
    GroupByExpert => "group_by_expert",
    DispatchTokens => "dispatch_tokens",
    CombineTokens => "combine_tokens",
    CombineWeightGrad => "combine_weight_grad",
    ChoiceScores => "choice_scores",
    RouterWeights => "router_weights",
    RouterWeightsBackward => "router_weights_backward",
    RouterAuxiliaryLoss => "router_auxiliary_loss",
    RouterAuxiliaryLossBackward => "router_auxiliary_loss_backward",
    CausalConvKernel => "causal_conv",
    CausalConvWeightGrad => "causal_conv_weight_grad",
    UnfoldKernel => "unfold",
    FoldKernel => "fold",
    CudaKernel => "cuda_kernel",
    Zero => "zero",
    Copy => "copy",
    CombineKernel => "combine",
    CopyOut => "copy_out",
    CopyIn => "copy_in",
    Upload => "upload",
    Download => "download",
}

impl KernelOp {
    /// Returns true for matmuls.
    pub const fn is_matmul(self) -> bool {
        matches!(self, KernelOp::Gemm | KernelOp::GroupedGemm | KernelOp::BatchedMatmul)
    }

    /// Returns true for attention and its backward.
    pub const fn is_attention(self) -> bool {
        matches!(self, KernelOp::AttentionKernel | KernelOp::AttentionBackward)
    }
}

impl fmt::Display for KernelOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Kernel {
    /// Returns all bytes that the operation has to move.
    pub fn bytes(&self) -> u64 {
        self.read + self.written
    }
}

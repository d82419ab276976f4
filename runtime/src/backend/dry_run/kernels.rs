//! The kernels of a dry run.

use crate::backend::{
    AdamStep, AdamwArgs, AttentionArgs, AttentionBackwardArgs, AttentionOps, AttentionShape,
    BlockCopy, BlockIndex, CombineTokensArgs, CombineWeightGradArgs, CopyOps, CrossEntropyArgs,
    CrossEntropyGradArgs, CrossEntropyLossArgs, DispatchTokensArgs, ElementwiseOps, EmbeddingOps,
    ExpSumArgs, Expr, Gemm, GemmEpilogue, GroupByExpertArgs, LayerNormArgs, LayerNormBackwardArgs,
    LeafGrad, LossOps, MatmulOps, MaxExpSumArgs, MergeAttentionArgs, MiddleDim, NormOps,
    OptimizerOps, RandomOps, ReductionOps, RmsNormArgs, RmsNormBackwardArgs, RopeArgs, RopeOps,
    RopeShape, RoutingOps, RoutingShape, SgdArgs, SgdStep, SoftmaxOps, TopKArgs, UpdateExpr,
    UpdateOperands, View, ViewMut,
};

use super::DryRunBackend;

impl MatmulOps for DryRunBackend {
    fn gemm(&self, _: &Gemm, _: View, _: View, _: ViewMut) {}

    fn has_epilogues(&self) -> bool {
        self.device.is_some()
    }

    fn gemm_with_epilogue(
        &self,
        _: &Gemm,
        _: View,
        _: View,
        _: GemmEpilogue<'_>,
        _: ViewMut,
    ) -> bool {
        self.has_epilogues()
    }
}

impl ElementwiseOps for DryRunBackend {
    fn map(&self, _: &Expr, _: &[View], _: ViewMut) {}
    fn map_backward(&self, _: &Expr, _: &[View], _: View, _: &mut [Option<LeafGrad>]) {}
}

impl CopyOps for DryRunBackend {
    fn copy_blocks(&self, _: &BlockCopy, _: View, _: ViewMut) {}
    fn cast(&self, _: View, _: ViewMut) {}
    fn add_assign(&self, _: ViewMut, _: View) {}
    fn lerp(&self, _: ViewMut, _: View, _: f32) {}
    fn fill(&self, _: ViewMut, _: f32) {}
    fn scale(&self, _: ViewMut, _: f32) {}
}

impl ReductionOps for DryRunBackend {
    fn sum_dim(&self, _: MiddleDim, _: View, _: ViewMut, _: f32) {}
    fn broadcast_dim(&self, _: MiddleDim, _: View, _: ViewMut, _: f32) {}

    /// Returns 0.
    fn sum_squares(&self, _: View) -> f64 {
        0.0
    }
}

impl NormOps for DryRunBackend {
    fn rms_norm(&self, _: RmsNormArgs) {}
    fn rms_norm_backward(&self, _: RmsNormBackwardArgs) {}
    fn layer_norm(&self, _: LayerNormArgs) {}
    fn layer_norm_backward(&self, _: LayerNormBackwardArgs) {}
}

impl RopeOps for DryRunBackend {
    fn rope(&self, _: &RopeShape, _: RopeArgs) {}
}

impl AttentionOps for DryRunBackend {
    fn attention(&self, _: &AttentionShape, _: AttentionArgs) {}
    fn attention_backward(&self, _: &AttentionShape, _: AttentionBackwardArgs) {}
    fn merge_attention(&self, _: &AttentionShape, _: MergeAttentionArgs) {}
}

impl EmbeddingOps for DryRunBackend {
    fn embedding(&self, _: View, _: View, _: usize, _: ViewMut) {}
    fn embedding_backward(&self, _: View, _: usize, _: View, _: ViewMut) {}
}

impl SoftmaxOps for DryRunBackend {
    fn softmax(&self, _: usize, _: View, _: ViewMut) {}
    fn softmax_backward(&self, _: usize, _: View, _: View, _: ViewMut) {}
}

impl LossOps for DryRunBackend {
    fn row_max(&self, _: usize, _: View, _: ViewMut) {}
    fn exp_sum(&self, _: ExpSumArgs) {}
    fn max_exp_sum(&self, _: MaxExpSumArgs) {}
    fn cross_entropy_loss(&self, _: CrossEntropyLossArgs) {}
    fn cross_entropy_grad(&self, _: CrossEntropyGradArgs) {}
    fn cross_entropy(&self, _: CrossEntropyArgs) {}
}

impl OptimizerOps for DryRunBackend {
    fn adamw(&self, _: &AdamStep, _: AdamwArgs) {}
    fn sgd(&self, _: &SgdStep, _: SgdArgs) {}
    fn apply_update(&self, _: &UpdateExpr, _: UpdateOperands<'_>) {}
}

impl RandomOps for DryRunBackend {
    fn normal(&self, _: u64, _: f32, _: &BlockIndex, _: ViewMut) {}
}

impl RoutingOps for DryRunBackend {
    fn top_k(&self, _: TopKArgs) {}
    fn group_by_expert(&self, _: GroupByExpertArgs) {}
    fn dispatch_tokens(&self, _: RoutingShape, _: DispatchTokensArgs) {}
    fn combine_tokens(&self, _: RoutingShape, _: CombineTokensArgs) {}
    fn combine_weight_grad(&self, _: RoutingShape, _: CombineWeightGradArgs) {}
}

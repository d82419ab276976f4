//! Backward of a matmul, with the bias gradient and GELU of its epilogue.

use std::sync::Arc;

use crate::context::{Rank, alloc_like};
use meshwright_backend::{Buffer, Category, Gemm, LeafGrad};

use super::super::function::SavedInput;
use super::super::param_use::ParamUse;
use super::super::tape::{Dependencies, TapeGradients};
use super::epilogue::{bias_expr, gelu_expr};

/// Dims of a matmul `x[m, k] · weight[k, n]`.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct MatmulDims {
    pub m: usize,
    pub k: usize,
    pub n: usize,
    /// True if the weight is stored as `[n, k]`.
    pub transposed: bool,
}

/// Everything that the backward of a matmul needs.
pub(super) struct MatmulBackward {
    pub x: SavedInput,
    pub weight: ParamUse,
    pub dims: MatmulDims,
}

impl MatmulBackward {
    /// Returns what the backward depends on, with the bias of an epilogue.
    pub(super) fn dependencies(&self, bias: Option<&ParamUse>) -> Dependencies {
        let uses = [&self.weight].into_iter().chain(bias).map(ParamUse::unit_use);
        Dependencies::on(self.x.source()).with_uses(uses)
    }

    /// Passes the gradient `dy` of the result on to `x`, the weight, and the bias of an epilogue.
    pub(super) fn run_backward(
        self,
        gradients: &mut TapeGradients<'_>,
        dy: Arc<Buffer>,
        bias: Option<ParamUse>,
    ) {
        let rank = gradients.rank;
        let MatmulDims { m, k, n, transposed } = self.dims;
        if !gradients.defers_weight_gradients() {
            self.x.prefetch(rank);
        }
        if let Some(source) = self.x.source() {
            let weight = &self.weight;
            gradients.accumulate(source, m * k, |dx, accumulate| {
                let weight = weight.param().values();
                let gemm = Gemm { m, n: k, k: n, trans_a: false, trans_b: !transposed, accumulate };
                rank.backend().gemm(&gemm, dy.view(), weight.view(), dx);
            });
        }
        let is_trained =
            self.weight.is_trained() || bias.as_ref().is_some_and(ParamUse::is_trained);
        if is_trained {
            gradients.weight_gradient(move |gradients| {
                self.finish_params(gradients, &dy, bias);
            });
        }
    }

    /// Computes the gradients of the weight and of the bias.
    fn finish_params(mut self, gradients: &TapeGradients<'_>, dy: &Buffer, bias: Option<ParamUse>) {
        let rank = gradients.rank;
        let MatmulDims { m, k, n, transposed } = self.dims;
        let x = self.x.take_data(rank);
        self.weight.finish_use(gradients, |dw, accumulate| {
            let x = x.expect("the input of a trained weight is saved");
            // The gradient has the layout of the weight: `xᵀ · dy`, or its transpose.
            let (rows, cols, a, b) = if transposed { (n, k, dy, &*x) } else { (k, n, &*x, dy) };
            let gemm = Gemm { m: rows, n: cols, k: m, trans_a: true, trans_b: false, accumulate };
            rank.backend().gemm(&gemm, a.view(), b.view(), dw);
        });
        if let Some(bias) = bias {
            bias.finish_use(gradients, |view, accumulate| {
                sum_rows(rank, dy, LeafGrad { view, accumulate });
            });
        }
    }
}

/// Computes the gradient of the pre-activation of GELU, and in the same pass that of the bias added before it, unless
/// weight gradients are deferred: then the bias is returned. Both operands are freed after it.
pub(super) fn backward_gelu(
    gradients: &TapeGradients<'_>,
    preactivation: Arc<Buffer>,
    dy: Arc<Buffer>,
    bias: ParamUse,
) -> (Arc<Buffer>, Option<ParamUse>) {
    let backend = gradients.rank.backend();
    let mut gradient = alloc_like(&dy, dy.len());
    let mut is_computed = false;
    let bias = if gradients.defers_weight_gradients() {
        Some(bias)
    } else {
        bias.finish_use(gradients, |view, accumulate| {
            // The bias has been added already.
            let allocator = gradients.rank.allocator();
            let zeros = allocator.zeros(dy.dtype(), view.len(), Category::Workspace);
            let leaves = [preactivation.view(), zeros.view()];
            let of_sum = LeafGrad { view: gradient.view_mut(), accumulate: false };
            let mut targets = [Some(of_sum), Some(LeafGrad { view, accumulate })];
            backend.map_backward(&bias_expr(true), &leaves, dy.view(), &mut targets);
            is_computed = true;
        });
        None
    };
    if !is_computed {
        let target = LeafGrad { view: gradient.view_mut(), accumulate: false };
        let leaves = [preactivation.view()];
        backend.map_backward(&gelu_expr(), &leaves, dy.view(), &mut [Some(target)]);
    }
    (Arc::new(gradient), bias)
}

/// Computes the gradient of a bias from that of the sum. A separate pass: as an epilogue of the matmul of the weight's
/// gradient it takes longer (cuBLASLt's BGRAD on an H200).
fn sum_rows(rank: &Rank, dy: &Buffer, gradient: LeafGrad<'_>) {
    // No derivative of a sum depends on a value: any numbers will do.
    let bias = rank.alloc_scratch(dy.dtype(), gradient.view.len());
    let leaves = [dy.view(), bias.view()];
    let mut gradients = [None, Some(gradient)];
    rank.backend().map_backward(&bias_expr(false), &leaves, dy.view(), &mut gradients);
}

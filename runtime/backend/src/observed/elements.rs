//! Elementwise expressions, copies, reductions and random numbers.

use crate::{
    BlockCopy, BlockIndex, CopyOps, ElementwiseOps, Expr, LeafGrad, MiddleDim, RandomOps,
    ReductionOps, StridedCopy, View, ViewMut,
};

use super::bytes::{OperandBytes, accumulated};
use super::{KernelOp, ObservedBackend};

impl ElementwiseOps for ObservedBackend {
    fn map(&self, expr: &Expr, leaves: &[View], out: ViewMut) {
        let bytes = [leaves.moved(), out.moved()];
        let _launch = self.report_pass(KernelOp::Map, [out.len(), 0], out.dtype(), bytes);
        self.backend.map(expr, leaves, out);
    }

    fn map_backward(
        &self,
        expr: &Expr,
        leaves: &[View],
        grad: View,
        leaf_grads: &mut [Option<LeafGrad>],
    ) {
        let added: u64 = leaf_grads.iter().map(|grad| accumulated(grad.as_ref())).sum();
        let bytes = [leaves.moved() + grad.moved() + added, leaf_grads.moved()];
        let _launch = self.report_pass(KernelOp::MapBackward, [grad.len(), 0], grad.dtype(), bytes);
        self.backend.map_backward(expr, leaves, grad, leaf_grads);
    }
}

impl CopyOps for ObservedBackend {
    fn copy_blocks(&self, copy: &BlockCopy, src: View, dst: ViewMut) {
        let (elements, dtype) = (copy.blocks * copy.len, src.dtype());
        let moved = (elements * dtype.bytes()) as u64;
        let _launch =
            self.report_pass(KernelOp::CopyBlocks, [copy.blocks, copy.len], dtype, [moved; 2]);
        self.backend.copy_blocks(copy, src, dst);
    }

    fn copy_strided(&self, copy: &StridedCopy, src: View, dst: ViewMut) {
        let (elements, dtype) = (copy.elements(), src.dtype());
        let moved = (elements * dtype.bytes()) as u64;
        let _launch = self.report_pass(KernelOp::CopyStrided, [elements, 0], dtype, [moved; 2]);
        self.backend.copy_strided(copy, src, dst);
    }

    fn cast(&self, src: View, dst: ViewMut) {
        let bytes = [src.moved(), dst.moved()];
        let _launch = self.report_pass(KernelOp::Cast, [src.len(), 0], src.dtype(), bytes);
        self.backend.cast(src, dst);
    }

    fn add_assign(&self, dst: ViewMut, src: View) {
        let bytes = [src.moved() + dst.moved(), dst.moved()];
        let _launch = self.report_pass(KernelOp::AddInPlace, [src.len(), 0], src.dtype(), bytes);
        self.backend.add_assign(dst, src);
    }

    fn lerp(&self, dst: ViewMut, src: View, weight: f32) {
        let bytes = [src.moved() + dst.moved(), dst.moved()];
        let _launch = self.report_pass(KernelOp::Lerp, [src.len(), 0], src.dtype(), bytes);
        self.backend.lerp(dst, src, weight);
    }

    fn fill(&self, dst: ViewMut, value: f32) {
        let _launch =
            self.report_pass(KernelOp::Fill, [dst.len(), 0], dst.dtype(), [0, dst.moved()]);
        self.backend.fill(dst, value);
    }

    fn scale(&self, dst: ViewMut, factor: f32) {
        let _launch =
            self.report_pass(KernelOp::ScaleKernel, [dst.len(), 0], dst.dtype(), [dst.moved(); 2]);
        self.backend.scale(dst, factor);
    }
}

impl ReductionOps for ObservedBackend {
    fn sum_dim(&self, dim: MiddleDim, x: View, y: ViewMut, scale: f32) {
        let sizes = [dim.outer * dim.len, dim.inner];
        let _launch = self.report_pass(KernelOp::SumDim, sizes, x.dtype(), [x.moved(), y.moved()]);
        self.backend.sum_dim(dim, x, y, scale);
    }

    fn broadcast_dim(&self, dim: MiddleDim, dy: View, dx: ViewMut, scale: f32) {
        let sizes = [dim.outer * dim.len, dim.inner];
        let _launch =
            self.report_pass(KernelOp::BroadcastDim, sizes, dy.dtype(), [dy.moved(), dx.moved()]);
        self.backend.broadcast_dim(dim, dy, dx, scale);
    }

    fn sum_squares(&self, x: View) -> f64 {
        let _launch =
            self.report_pass(KernelOp::SumSquares, [x.len(), 0], x.dtype(), [x.moved(), 0]);
        self.backend.sum_squares(x)
    }

    fn sum_squares_of(&self, parts: &[View]) -> f64 {
        let report = |part: &View| {
            let bytes = [part.moved(), 0];
            self.report_pass(KernelOp::SumSquares, [part.len(), 0], part.dtype(), bytes)
        };
        let _launches: Vec<_> = parts.iter().map(report).collect();
        self.backend.sum_squares_of(parts)
    }
}

impl RandomOps for ObservedBackend {
    fn fill_normal(&self, key: u64, std: f32, index: &BlockIndex, out: ViewMut) {
        let _launch =
            self.report_pass(KernelOp::FillNormal, [out.len(), 0], out.dtype(), [0, out.moved()]);
        self.backend.fill_normal(key, std, index, out);
    }

    fn fill_uniform(&self, key: u64, bound: f32, index: &BlockIndex, out: ViewMut) {
        let _launch =
            self.report_pass(KernelOp::FillUniform, [out.len(), 0], out.dtype(), [0, out.moved()]);
        self.backend.fill_uniform(key, bound, index, out);
    }
}

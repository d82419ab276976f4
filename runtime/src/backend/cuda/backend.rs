//! The kernels of one rank on its GPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend::Queue;
use crate::backend::{
    AdamStep, AttentionShape, Backend, BlockIndex, DType, Device, Expr, Gemm, GemmEnding, LeafGrad,
    RopeShape, SgdStep, UpdateExpr, UpdateOperands, View, ViewMut,
};

use super::driver::{Driver, DriverError, Ending, MatMul, MatMulOperands};
use super::gpu::{Gpu, done};
use super::memory::GpuMemory;
use super::ops;

/// The backend of one rank on a GPU.
pub struct CudaBackend {
    gpu: Arc<Gpu>,
    memory: Arc<GpuMemory>,
    flops: AtomicU64,
}

impl CudaBackend {
    /// A backend of one rank on the device of `driver`.
    pub fn new(driver: Arc<dyn Driver>) -> CudaBackend {
        let gpu = Gpu::new(driver);
        let memory = Arc::new(GpuMemory::new(Arc::clone(&gpu)));
        CudaBackend { gpu, memory, flops: AtomicU64::new(0) }
    }

    /// The hold on the device, for operations that are not of every backend.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }
}

impl CudaBackend {
    /// Submits a product of operands that have its sizes. Gives whether there is one: those that do nothing beside always
    /// are.
    fn multiply(&self, shape: &MatMul, operands: &MatMulOperands) -> bool {
        let (g, stream) = (&shape.gemm, self.gpu.stream(Queue::Compute));
        let is_there = self.gpu.relieved(|| {
            // SAFETY: the operands have the sizes of the product, and what is submitted to one stream is done in order.
            match unsafe { self.gpu.driver().matmul(stream, shape, operands) } {
                Err(DriverError::Refused { .. }) if shape.ending != Ending::Plain => Ok(false),
                submitted => submitted.map(|()| true),
            }
        });
        if is_there {
            self.flops.fetch_add(2 * (g.m * g.n * g.k) as u64, Ordering::Relaxed);
        }
        is_there
    }
}

/// The plain product of these operands.
///
/// # Panics
/// When they have other sizes.
fn product(g: &Gemm, a: View, b: View, c: &ViewMut) -> MatMul {
    assert!(
        a.len() == g.m * g.k
            && b.len() == g.k * g.n
            && c.len() == g.m * g.n
            && a.dtype() == b.dtype(),
        "operands of a product have its sizes and one dtype"
    );
    MatMul { gemm: *g, factors: a.dtype(), result: c.dtype(), ending: Ending::Plain }
}

fn at(view: View) -> u64 {
    view.address() as u64
}

impl Backend for CudaBackend {
    fn device(&self) -> Option<Arc<dyn Device>> {
        Some(Arc::clone(&self.memory) as Arc<dyn Device>)
    }

    fn threads(&self) -> usize {
        1
    }

    fn flops(&self) -> u64 {
        self.flops.load(Ordering::Relaxed)
    }

    fn count_flops(&self, flops: u64) {
        self.flops.fetch_add(flops, Ordering::Relaxed);
    }

    fn gemm(&self, g: &Gemm, a: View, b: View, c: ViewMut) {
        let operands = MatMulOperands::plain(at(a), at(b), at(c.as_view()));
        self.multiply(&product(g, a, b, &c), &operands);
    }

    fn has_endings(&self) -> bool {
        true
    }

    fn gemm_with(&self, g: &Gemm, a: View, b: View, ending: GemmEnding<'_>, c: ViewMut) -> bool {
        let mut shape = product(g, a, b, &c);
        let mut operands = MatMulOperands::plain(at(a), at(b), at(c.as_view()));
        let check = |what: &str, view: View, dtype, len| {
            assert!(
                view.dtype() == dtype && view.len() == len,
                "{what} of a product fits its result"
            );
            at(view)
        };
        match ending {
            GemmEnding::Bias(bias) => {
                shape.ending = Ending::Bias;
                operands.vector = check("the bias", bias, c.dtype(), g.n);
            }
            GemmEnding::BiasGelu { bias, inside } => {
                shape.ending = Ending::BiasGelu { keeps: inside.is_some() };
                operands.vector = check("the bias", bias, c.dtype(), g.n);
                operands.inside = inside.map_or(0, |inside| {
                    check("what GELU is taken of", inside.as_view(), c.dtype(), g.m * g.n)
                });
            }
            GemmEnding::Sums(sums) => {
                shape.ending = Ending::Sums;
                operands.vector = check("the sums", sums.as_view(), DType::F32, g.n);
            }
        }
        let MatMulOperands { a, b, c, vector, inside } = operands;
        let is_aligned = |address: u64| address.is_multiple_of(MatMulOperands::ALIGNMENT);
        [a, b, c, vector, inside].into_iter().all(is_aligned)
            && done(self.gpu.driver().has_matmul(&shape))
            && self.multiply(&shape, &operands)
    }

    fn map(&self, expr: &Expr, leaves: &[View], out: ViewMut) {
        ops::map::map(&self.gpu, expr, leaves, out)
    }

    fn map_backward(
        &self,
        expr: &Expr,
        leaves: &[View],
        grad: View,
        leaf_grads: &mut [Option<LeafGrad>],
    ) {
        ops::map::map_backward(&self.gpu, expr, leaves, grad, leaf_grads)
    }

    fn rms_norm(&self, x: View, weight: View, eps: f32, y: ViewMut, inv_rms: ViewMut) {
        ops::norm::rms_norm(&self.gpu, x, weight, eps, y, inv_rms)
    }

    fn residual_rms_norm(
        &self,
        x: View,
        residual: View,
        weight: View,
        eps: f32,
        sum: ViewMut,
        y: ViewMut,
        inv_rms: ViewMut,
    ) {
        ops::norm::residual_rms_norm(&self.gpu, x, residual, weight, eps, sum, y, inv_rms);
    }

    fn rms_norm_backward(
        &self,
        x: View,
        weight: View,
        inv_rms: View,
        dy: View,
        dx: LeafGrad,
        dweight: Option<LeafGrad>,
    ) {
        ops::norm::rms_norm_backward(&self.gpu, x, weight, inv_rms, dy, dx, dweight)
    }

    fn layer_norm(
        &self,
        x: View,
        weight: View,
        bias: View,
        eps: f32,
        y: ViewMut,
        mean: ViewMut,
        inv_std: ViewMut,
    ) {
        ops::norm::layer_norm(&self.gpu, x, weight, bias, eps, y, mean, inv_std)
    }

    fn residual_layer_norm(
        &self,
        x: View,
        residual: View,
        weight: View,
        bias: View,
        eps: f32,
        sum: ViewMut,
        y: ViewMut,
        mean: ViewMut,
        inv_std: ViewMut,
    ) {
        ops::norm::residual_layer_norm(
            &self.gpu, x, residual, weight, bias, eps, sum, y, mean, inv_std,
        );
    }

    fn layer_norm_backward(
        &self,
        x: View,
        weight: View,
        mean: View,
        inv_std: View,
        dy: View,
        dx: LeafGrad,
        dweight: Option<LeafGrad>,
        dbias: Option<LeafGrad>,
    ) {
        ops::norm::layer_norm_backward(&self.gpu, x, weight, mean, inv_std, dy, dx, dweight, dbias)
    }

    fn rope(&self, s: &RopeShape, x: View, cos: View, sin: View, inverse: bool, y: ViewMut) {
        ops::rope::rope(&self.gpu, s, x, cos, sin, inverse, y)
    }

    fn attention(&self, s: &AttentionShape, q: View, k: View, v: View, out: ViewMut, lse: ViewMut) {
        let flops = ops::attention::attention(&self.gpu, s, q, k, v, out, lse);
        self.flops.fetch_add(flops, Ordering::Relaxed);
    }

    fn attention_backward(
        &self,
        s: &AttentionShape,
        q: View,
        k: View,
        v: View,
        out: View,
        lse: View,
        dout: View,
        dq: ViewMut,
        dk: ViewMut,
        dv: ViewMut,
    ) {
        let gpu = &self.gpu;
        let flops = ops::attention::attention_backward(gpu, s, q, k, v, out, lse, dout, dq, dk, dv);
        self.flops.fetch_add(flops, Ordering::Relaxed);
    }

    fn embedding(&self, tokens: View, table: View, first_row: usize, out: ViewMut) {
        ops::embedding::embedding(&self.gpu, tokens, table, first_row, out)
    }

    fn embedding_backward(&self, tokens: View, first_row: usize, dout: View, dtable: ViewMut) {
        ops::embedding::embedding_backward(&self.gpu, tokens, first_row, dout, dtable)
    }

    fn softmax(&self, cols: usize, x: View, y: ViewMut) {
        ops::softmax::softmax(&self.gpu, cols, x, y)
    }

    fn softmax_backward(&self, cols: usize, y: View, dy: View, dx: ViewMut) {
        ops::softmax::softmax_backward(&self.gpu, cols, y, dy, dx)
    }

    fn row_max(&self, cols: usize, x: View, max: ViewMut) {
        ops::loss::row_max(&self.gpu, cols, x, max)
    }

    fn exp_sum(
        &self,
        cols: usize,
        logits: View,
        max: View,
        targets: View,
        first_col: usize,
        sum_exp: ViewMut,
        target_logit: ViewMut,
    ) {
        ops::loss::exp_sum(&self.gpu, cols, logits, max, targets, first_col, sum_exp, target_logit)
    }

    fn max_exp_sum(
        &self,
        cols: usize,
        logits: View,
        targets: View,
        first_col: usize,
        max: ViewMut,
        sum_exp: ViewMut,
        target_logit: ViewMut,
    ) {
        ops::loss::max_exp_sum(
            &self.gpu,
            cols,
            logits,
            targets,
            first_col,
            max,
            sum_exp,
            target_logit,
        );
    }

    fn cross_entropy_loss(
        &self,
        max: View,
        sum_exp: View,
        target_logit: View,
        targets: View,
        sum: ViewMut,
    ) {
        ops::loss::cross_entropy_loss(&self.gpu, max, sum_exp, target_logit, targets, sum)
    }

    fn cross_entropy_grad(
        &self,
        cols: usize,
        logits: ViewMut,
        max: View,
        sum_exp: View,
        targets: View,
        first_col: usize,
        row_scale: View,
    ) {
        ops::loss::cross_entropy_grad(
            &self.gpu, cols, logits, max, sum_exp, targets, first_col, row_scale,
        )
    }

    fn cross_entropy(
        &self,
        cols: usize,
        logits: ViewMut,
        targets: View,
        first_col: usize,
        row_scale: View,
        max: ViewMut,
        sum_exp: ViewMut,
        target_logit: ViewMut,
    ) {
        ops::loss::cross_entropy(
            &self.gpu,
            cols,
            logits,
            targets,
            first_col,
            row_scale,
            max,
            sum_exp,
            target_logit,
        )
    }

    fn sum_dim(&self, outer: usize, n: usize, inner: usize, x: View, y: ViewMut, scale: f32) {
        ops::reduce::sum_dim(&self.gpu, outer, n, inner, x, y, scale)
    }

    fn broadcast_dim(
        &self,
        outer: usize,
        n: usize,
        inner: usize,
        dy: View,
        dx: ViewMut,
        scale: f32,
    ) {
        ops::reduce::broadcast_dim(&self.gpu, outer, n, inner, dy, dx, scale)
    }

    fn copy_blocks(
        &self,
        blocks: usize,
        len: usize,
        src: View,
        src_start: usize,
        src_stride: usize,
        dst: ViewMut,
        dst_start: usize,
        dst_stride: usize,
    ) {
        ops::elements::copy_blocks(
            &self.gpu, blocks, len, src, src_start, src_stride, dst, dst_start, dst_stride,
        )
    }

    fn cast(&self, src: View, dst: ViewMut) {
        ops::elements::cast(&self.gpu, src, dst)
    }

    fn add_assign(&self, dst: ViewMut, src: View) {
        ops::elements::add_assign(&self.gpu, dst, src)
    }

    fn lerp(&self, dst: ViewMut, src: View, weight: f32) {
        ops::elements::lerp(&self.gpu, dst, src, weight)
    }

    fn fill(&self, dst: ViewMut, value: f32) {
        ops::elements::fill(&self.gpu, dst, value)
    }

    fn scale(&self, dst: ViewMut, factor: f32) {
        ops::elements::scale(&self.gpu, dst, factor)
    }

    fn sum_squares(&self, x: View) -> f64 {
        ops::reduce::sum_squares_of(&self.gpu, &[x])
    }

    fn sum_squares_of(&self, parts: &[View]) -> f64 {
        ops::reduce::sum_squares_of(&self.gpu, parts)
    }

    fn adamw(
        &self,
        step: &AdamStep,
        p: ViewMut,
        g: View,
        m: ViewMut,
        v: ViewMut,
        copy: Option<ViewMut>,
    ) {
        ops::optim::adamw(&self.gpu, step, p, g, m, v, copy)
    }

    fn sgd(
        &self,
        step: &SgdStep,
        p: ViewMut,
        g: View,
        momentum: Option<ViewMut>,
        copy: Option<ViewMut>,
    ) {
        ops::optim::sgd(&self.gpu, step, p, g, momentum, copy)
    }

    fn apply_update(&self, expr: &UpdateExpr, operands: UpdateOperands<'_>) {
        ops::map::update::apply_update(&self.gpu, expr, operands)
    }

    fn normal(&self, key: u64, std: f32, index: &BlockIndex, out: ViewMut) {
        ops::random::normal(&self.gpu, key, std, index, out)
    }
}

//! The host processor as a [`Backend`].

use std::sync::atomic::{AtomicU64, Ordering};

use super::elements::{self, Runs};
use super::workers::Workers;
use super::{
    attention, embedding, gemm, map, map_backward, norm, optim, random, reduce, rope, softmax,
};
use crate::backend::{
    AdamStep, AttentionShape, Backend, BlockIndex, DType, Expr, Gemm, LeafGrad, RopeShape, View,
    ViewMut,
};

/// Kernels of one rank on the host processor, vectorised for what it can do.
pub struct CpuBackend {
    workers: Workers,
    flops: AtomicU64,
}

impl CpuBackend {
    /// A backend that runs on the calling thread and `threads - 1` more.
    ///
    /// Create it on the thread of its rank: with one thread there is no pool, and otherwise the calling thread is a
    /// worker of it, so that no work is handed over.
    ///
    /// # Errors
    /// When the system refuses to start a thread.
    pub fn new(threads: usize) -> std::io::Result<CpuBackend> {
        let workers = Workers::new(threads).map_err(std::io::Error::other)?;
        Ok(CpuBackend { workers, flops: AtomicU64::new(0) })
    }
}

fn typed<'a>(leaves: &[View<'a>]) -> Vec<&'a [f32]> {
    leaves.iter().map(View::typed::<f32>).collect()
}

impl Backend for CpuBackend {
    fn threads(&self) -> usize {
        self.workers.threads()
    }

    fn flops(&self) -> u64 {
        self.flops.load(Ordering::Relaxed)
    }

    fn gemm(&self, g: &Gemm, a: View, b: View, mut c: ViewMut) {
        gemm::gemm(&self.workers, &self.flops, g, a.typed(), b.typed(), c.typed());
    }

    fn map(&self, expr: &Expr, leaves: &[View], mut out: ViewMut) {
        map::map(&self.workers, expr, &typed(leaves), out.typed());
    }

    fn map_backward(
        &self,
        expr: &Expr,
        leaves: &[View],
        grad: View,
        leaf_grads: &mut [Option<LeafGrad>],
    ) {
        map_backward::map_backward(&self.workers, expr, &typed(leaves), grad.typed(), leaf_grads);
    }

    fn rms_norm(&self, x: View, weight: View, eps: f32, mut y: ViewMut, mut inv_rms: ViewMut) {
        norm::rms_norm(&self.workers, x.typed(), weight.typed(), eps, y.typed(), inv_rms.typed());
    }

    fn rms_norm_backward(
        &self,
        x: View,
        weight: View,
        inv_rms: View,
        dy: View,
        mut dx: ViewMut,
        mut dweight: Option<ViewMut>,
    ) {
        norm::rms_norm_backward(
            &self.workers,
            x.typed(),
            weight.typed(),
            inv_rms.typed(),
            dy.typed(),
            dx.typed(),
            dweight.as_mut().map(ViewMut::typed),
        );
    }

    fn layer_norm(
        &self,
        x: View,
        weight: View,
        bias: View,
        eps: f32,
        mut y: ViewMut,
        mut mean: ViewMut,
        mut inv_std: ViewMut,
    ) {
        norm::layer_norm(
            &self.workers,
            x.typed(),
            weight.typed(),
            bias.typed(),
            eps,
            y.typed(),
            mean.typed(),
            inv_std.typed(),
        );
    }

    fn layer_norm_backward(
        &self,
        x: View,
        weight: View,
        mean: View,
        inv_std: View,
        dy: View,
        mut dx: ViewMut,
        mut dweight: Option<ViewMut>,
        mut dbias: Option<ViewMut>,
    ) {
        norm::layer_norm_backward(
            &self.workers,
            x.typed(),
            weight.typed(),
            mean.typed(),
            inv_std.typed(),
            dy.typed(),
            dx.typed(),
            dweight.as_mut().map(ViewMut::typed),
            dbias.as_mut().map(ViewMut::typed),
        );
    }

    fn rope(&self, s: &RopeShape, mut x: ViewMut, cos: View, sin: View, inverse: bool) {
        rope::rope(&self.workers, s, x.typed(), cos.typed(), sin.typed(), inverse);
    }

    fn attention(
        &self,
        s: &AttentionShape,
        q: View,
        k: View,
        v: View,
        mut out: ViewMut,
        mut lse: ViewMut,
    ) {
        attention::attention(
            &self.workers,
            &self.flops,
            s,
            q.typed(),
            k.typed(),
            v.typed(),
            out.typed(),
            lse.typed(),
        );
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
        mut dq: ViewMut,
        mut dk: ViewMut,
        mut dv: ViewMut,
    ) {
        attention::attention_backward(
            &self.workers,
            &self.flops,
            s,
            q.typed(),
            k.typed(),
            v.typed(),
            out.typed(),
            lse.typed(),
            dout.typed(),
            dq.typed(),
            dk.typed(),
            dv.typed(),
        );
    }

    fn embedding(&self, tokens: View, table: View, first_row: usize, mut out: ViewMut) {
        embedding::embedding(&self.workers, tokens.typed(), table.typed(), first_row, out.typed());
    }

    fn embedding_backward(&self, tokens: View, first_row: usize, dout: View, mut dtable: ViewMut) {
        let (tokens, dout) = (tokens.typed(), dout.typed());
        embedding::embedding_backward(&self.workers, tokens, first_row, dout, dtable.typed());
    }

    fn softmax(&self, cols: usize, x: View, mut y: ViewMut) {
        softmax::softmax(&self.workers, cols, x.typed(), y.typed());
    }

    fn softmax_backward(&self, cols: usize, y: View, dy: View, mut dx: ViewMut) {
        softmax::softmax_backward(&self.workers, cols, y.typed(), dy.typed(), dx.typed());
    }

    fn row_max(&self, cols: usize, x: View, mut max: ViewMut) {
        softmax::row_max(&self.workers, cols, x.typed(), max.typed());
    }

    fn exp_sum(
        &self,
        cols: usize,
        logits: View,
        max: View,
        targets: View,
        first_col: usize,
        mut sum_exp: ViewMut,
        mut target_logit: ViewMut,
    ) {
        softmax::exp_sum(
            &self.workers,
            cols,
            logits.typed(),
            max.typed(),
            targets.typed(),
            first_col,
            sum_exp.typed(),
            target_logit.typed(),
        );
    }

    fn cross_entropy_grad(
        &self,
        cols: usize,
        mut logits: ViewMut,
        max: View,
        sum_exp: View,
        targets: View,
        first_col: usize,
        row_scale: View,
    ) {
        softmax::cross_entropy_grad(
            &self.workers,
            cols,
            logits.typed(),
            max.typed(),
            sum_exp.typed(),
            targets.typed(),
            first_col,
            row_scale.typed(),
        );
    }

    fn sum_dim(&self, outer: usize, n: usize, inner: usize, x: View, mut y: ViewMut, scale: f32) {
        reduce::sum_dim(&self.workers, [outer, n, inner], x.typed(), y.typed(), scale);
    }

    fn broadcast_dim(
        &self,
        outer: usize,
        n: usize,
        inner: usize,
        dy: View,
        mut dx: ViewMut,
        scale: f32,
    ) {
        reduce::broadcast_dim(&self.workers, [outer, n, inner], dy.typed(), dx.typed(), scale);
    }

    fn copy_blocks(
        &self,
        blocks: usize,
        len: usize,
        src: View,
        src_start: usize,
        src_stride: usize,
        mut dst: ViewMut,
        dst_start: usize,
        dst_stride: usize,
    ) {
        let from = Runs { start: src_start, stride: src_stride };
        let to = Runs { start: dst_start, stride: dst_stride };
        let workers = &self.workers;
        match dst.dtype() {
            DType::F32 => elements::copy_blocks::<f32>(
                workers,
                blocks,
                len,
                src.typed(),
                from,
                dst.typed(),
                to,
            ),
            DType::U32 => elements::copy_blocks::<u32>(
                workers,
                blocks,
                len,
                src.typed(),
                from,
                dst.typed(),
                to,
            ),
        }
    }

    fn add_assign(&self, mut dst: ViewMut, src: View) {
        elements::add_assign(&self.workers, dst.typed(), src.typed());
    }

    fn fill(&self, mut dst: ViewMut, value: f32) {
        elements::fill(&self.workers, dst.typed(), value);
    }

    fn scale(&self, mut dst: ViewMut, factor: f32) {
        elements::scale(&self.workers, dst.typed(), factor);
    }

    fn sum_squares(&self, x: View) -> f64 {
        reduce::sum_squares(&self.workers, x.typed())
    }

    fn adamw(&self, step: &AdamStep, mut p: ViewMut, g: View, mut m: ViewMut, mut v: ViewMut) {
        optim::adamw(&self.workers, step, p.typed(), g.typed(), m.typed(), v.typed());
    }

    fn normal(&self, key: u64, std: f32, index: &BlockIndex, mut out: ViewMut) {
        random::normal(&self.workers, key, std, index, out.typed());
    }
}

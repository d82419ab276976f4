//! The host processor as a [`Backend`].

use std::sync::atomic::{AtomicU64, Ordering};

use half::bf16;

use super::elements::{self, Runs};
use super::float::Float;
use super::norm::Target;
use super::simd::Level;
use super::workers::Workers;
use super::{
    attention, embedding, gemm, map, map_backward, norm, optim, random, reduce, rope, softmax,
    update,
};
use crate::backend::{
    AdamStep, AttentionShape, Backend, BlockIndex, DType, Expr, Gemm, LeafGrad, RopeShape, SgdStep,
    UpdateExpr, UpdateOperands, View, ViewMut,
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
    /// When the system refuses to start a thread, or `MESHWRIGHT_MAX_CPU_ISA` names no instruction set.
    pub fn new(threads: usize) -> std::io::Result<CpuBackend> {
        Level::limit().map_err(std::io::Error::other)?;
        let workers = Workers::new(threads).map_err(std::io::Error::other)?;
        Ok(CpuBackend { workers, flops: AtomicU64::new(0) })
    }
}

/// Evaluates an expression with `T` as the type of a dtype that kernels compute on.
macro_rules! by_float {
    ($($dtype:expr => $T:ident),+; $body:expr) => {
        by_float!(@ [$($dtype => $T),+] $body)
    };
    (@ [] $body:expr) => {
        $body
    };
    (@ [$dtype:expr => $T:ident $(, $rest:expr => $U:ident)*] $body:expr) => {
        match $dtype {
            DType::F32 => {
                type $T = f32;
                by_float!(@ [$($rest => $U),*] $body)
            }
            DType::Bf16 => {
                type $T = bf16;
                by_float!(@ [$($rest => $U),*] $body)
            }
            DType::U32 => panic!("kernels compute on f32 and bf16, not on u32"),
        }
    };
}

fn typed<'a, T: Float>(leaves: &[View<'a>]) -> Vec<&'a [T]> {
    leaves.iter().map(View::typed::<T>).collect()
}

impl Backend for CpuBackend {
    fn threads(&self) -> usize {
        self.workers.threads()
    }

    fn flops(&self) -> u64 {
        self.flops.load(Ordering::Relaxed)
    }

    fn count_flops(&self, flops: u64) {
        self.flops.fetch_add(flops, Ordering::Relaxed);
    }

    fn gemm(&self, g: &Gemm, a: View, b: View, mut c: ViewMut) {
        let (workers, flops) = (&self.workers, &self.flops);
        match (a.dtype(), c.dtype()) {
            (DType::Bf16, DType::F32) => {
                gemm::gemm::<bf16, f32>(workers, flops, g, a.typed(), b.typed(), c.typed());
            }
            (dtype, _) => by_float!(dtype => T;
                gemm::gemm::<T, T>(workers, flops, g, a.typed(), b.typed(), c.typed())),
        }
    }

    fn map(&self, expr: &Expr, leaves: &[View], mut out: ViewMut) {
        by_float!(out.dtype() => T;
            map::map::<T>(&self.workers, expr, &typed(leaves), out.typed()));
    }

    fn map_backward(
        &self,
        expr: &Expr,
        leaves: &[View],
        grad: View,
        leaf_grads: &mut [Option<LeafGrad>],
    ) {
        let workers = &self.workers;
        by_float!(grad.dtype() => T;
            map_backward::map_backward::<T>(
                workers, expr, &typed(leaves), grad.typed(), leaf_grads));
    }

    fn rms_norm(&self, x: View, weight: View, eps: f32, mut y: ViewMut, mut inv_rms: ViewMut) {
        by_float!(x.dtype() => T;
            norm::rms_norm::<T>(
                &self.workers, x.typed(), weight.typed(), eps, y.typed(), inv_rms.typed()));
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
        by_float!(x.dtype() => T; norm::rms_norm_backward::<T>(
            &self.workers,
            x.typed(),
            weight.typed(),
            inv_rms.typed(),
            dy.typed(),
            dx.into(),
            dweight.map(Target::from),
        ));
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
        by_float!(x.dtype() => T; norm::layer_norm::<T>(
            &self.workers,
            x.typed(),
            weight.typed(),
            bias.typed(),
            eps,
            y.typed(),
            mean.typed(),
            inv_std.typed(),
        ));
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
        by_float!(x.dtype() => T; norm::layer_norm_backward::<T>(
            &self.workers,
            x.typed(),
            weight.typed(),
            mean.typed(),
            inv_std.typed(),
            dy.typed(),
            dx.into(),
            dweight.map(Target::from),
            dbias.map(Target::from),
        ));
    }

    fn rope(&self, s: &RopeShape, x: View, cos: View, sin: View, inverse: bool, mut y: ViewMut) {
        let workers = &self.workers;
        by_float!(x.dtype() => T;
            rope::rope::<T>(workers, s, x.typed(), cos.typed(), sin.typed(), inverse, y.typed()));
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
        by_float!(q.dtype() => T; attention::attention::<T>(
            &self.workers,
            &self.flops,
            s,
            q.typed(),
            k.typed(),
            v.typed(),
            out.typed(),
            lse.typed(),
        ));
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
        by_float!(q.dtype() => T; attention::attention_backward::<T>(
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
        ));
    }

    fn embedding(&self, tokens: View, table: View, first_row: usize, mut out: ViewMut) {
        by_float!(out.dtype() => T;
            embedding::embedding::<T>(
                &self.workers, tokens.typed(), table.typed(), first_row, out.typed()));
    }

    fn embedding_backward(&self, tokens: View, first_row: usize, dout: View, mut dtable: ViewMut) {
        let (workers, tokens) = (&self.workers, tokens.typed());
        by_float!(dout.dtype() => T; embedding::embedding_backward::<T>(
            workers, tokens, first_row, dout.typed(), dtable.typed()));
    }

    fn softmax(&self, cols: usize, x: View, mut y: ViewMut) {
        by_float!(x.dtype() => T; softmax::softmax::<T>(&self.workers, cols, x.typed(), y.typed()));
    }

    fn softmax_backward(&self, cols: usize, y: View, dy: View, mut dx: ViewMut) {
        by_float!(y.dtype() => T;
            softmax::softmax_backward::<T>(&self.workers, cols, y.typed(), dy.typed(), dx.typed()));
    }

    fn row_max(&self, cols: usize, x: View, mut max: ViewMut) {
        by_float!(x.dtype() => T;
            softmax::row_max::<T>(&self.workers, cols, x.typed(), max.typed()));
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
        by_float!(logits.dtype() => T; softmax::exp_sum::<T>(
            &self.workers,
            cols,
            logits.typed(),
            max.typed(),
            targets.typed(),
            first_col,
            sum_exp.typed(),
            target_logit.typed(),
        ));
    }

    fn cross_entropy_loss(
        &self,
        max: View,
        sum_exp: View,
        target_logit: View,
        targets: View,
        mut sum: ViewMut,
    ) {
        let statistics = [max, sum_exp, target_logit].map(|statistic| statistic.typed());
        sum.typed()[0] = softmax::cross_entropy_loss(statistics, targets.typed());
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
        by_float!(logits.dtype() => T; softmax::cross_entropy_grad::<T>(
            &self.workers,
            cols,
            logits.typed(),
            max.typed(),
            sum_exp.typed(),
            targets.typed(),
            first_col,
            row_scale.typed(),
        ));
    }

    fn cross_entropy(
        &self,
        cols: usize,
        mut logits: ViewMut,
        targets: View,
        first_col: usize,
        row_scale: View,
        mut max: ViewMut,
        mut sum_exp: ViewMut,
        mut target_logit: ViewMut,
    ) {
        by_float!(logits.dtype() => T; softmax::cross_entropy::<T>(
            &self.workers,
            cols,
            logits.typed(),
            targets.typed(),
            first_col,
            row_scale.typed(),
            [max.typed(), sum_exp.typed(), target_logit.typed()],
        ));
    }

    fn sum_dim(&self, outer: usize, n: usize, inner: usize, x: View, mut y: ViewMut, scale: f32) {
        by_float!(x.dtype() => T, y.dtype() => U;
            reduce::sum_dim::<T, U>(&self.workers, [outer, n, inner], x.typed(), y.typed(), scale));
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
        by_float!(dx.dtype() => T, dy.dtype() => U;
            reduce::broadcast_dim::<T, U>(
                &self.workers, [outer, n, inner], dy.typed(), dx.typed(), scale));
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
            DType::Bf16 => elements::copy_blocks::<bf16>(
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

    fn cast(&self, src: View, mut dst: ViewMut) {
        by_float!(src.dtype() => T, dst.dtype() => U;
            elements::cast::<T, U>(&self.workers, src.typed(), dst.typed()));
    }

    fn add_assign(&self, mut dst: ViewMut, src: View) {
        by_float!(dst.dtype() => T, src.dtype() => U;
            elements::add_assign::<T, U>(&self.workers, dst.typed(), src.typed()));
    }

    fn lerp(&self, mut dst: ViewMut, src: View, weight: f32) {
        by_float!(dst.dtype() => T, src.dtype() => U;
            elements::lerp::<T, U>(&self.workers, dst.typed(), src.typed(), weight));
    }

    fn fill(&self, mut dst: ViewMut, value: f32) {
        by_float!(dst.dtype() => T; elements::fill::<T>(&self.workers, dst.typed(), value));
    }

    fn scale(&self, mut dst: ViewMut, factor: f32) {
        by_float!(dst.dtype() => T; elements::scale::<T>(&self.workers, dst.typed(), factor));
    }

    fn sum_squares(&self, x: View) -> f64 {
        by_float!(x.dtype() => T; reduce::sum_squares::<T>(&self.workers, x.typed()))
    }

    fn adamw(
        &self,
        step: &AdamStep,
        mut p: ViewMut,
        g: View,
        mut m: ViewMut,
        mut v: ViewMut,
        mut copy: Option<ViewMut>,
    ) {
        let (workers, p, m, v) = (&self.workers, p.typed(), m.typed(), v.typed());
        let copy_dtype = copy.as_ref().map_or(DType::F32, ViewMut::dtype);
        by_float!(g.dtype() => G, copy_dtype => C; optim::adamw::<G, C>(
            workers, step, p, g.typed(), m, v, copy.as_mut().map(ViewMut::typed)));
    }

    fn sgd(
        &self,
        step: &SgdStep,
        mut p: ViewMut,
        g: View,
        mut momentum: Option<ViewMut>,
        mut copy: Option<ViewMut>,
    ) {
        let (workers, p) = (&self.workers, p.typed());
        let momentum = momentum.as_mut().map(ViewMut::typed);
        let copy_dtype = copy.as_ref().map_or(DType::F32, ViewMut::dtype);
        by_float!(g.dtype() => G, copy_dtype => C; optim::sgd::<G, C>(
            workers, step, p, g.typed(), momentum, copy.as_mut().map(ViewMut::typed)));
    }

    fn apply_update(&self, expr: &UpdateExpr, operands: UpdateOperands<'_>) {
        expr.check_operands(&operands);
        let UpdateOperands { mut param, gradient, mut states, mut copy } = operands;
        let states = states.iter_mut().map(ViewMut::typed).collect();
        let copy_dtype = copy.as_ref().map_or(DType::F32, ViewMut::dtype);
        by_float!(gradient.dtype() => G, copy_dtype => C; update::apply_update::<G, C>(
            &self.workers, expr, param.typed(), gradient.typed(), states,
            copy.as_mut().map(ViewMut::typed)));
    }

    fn normal(&self, key: u64, std: f32, index: &BlockIndex, mut out: ViewMut) {
        by_float!(out.dtype() => T;
            random::normal::<T>(&self.workers, key, std, index, out.typed()));
    }
}

//! The one trait behind which every kernel lives.

use std::sync::Arc;

use super::{
    AdamStep, AttentionShape, BlockIndex, Device, Expr, Gemm, GemmEnding, LeafGrad, RopeShape,
    SgdStep, UpdateExpr, UpdateOperands, View, ViewMut,
};

/// Kernels of one rank on one device.
///
/// Matrices are row-major and contiguous; `rows` of an operand without explicit sizes is its length over the row
/// length. "Written" operands need not be initialised; "accumulated" ones are added to. Results do not depend on
/// timing: the same call on the same backend gives the same bits.
///
/// # Element types
/// Operands are of one type `T`, f32 or bf16, where a kernel does not say otherwise. Whatever `T` is, arithmetic is in
/// f32: what is read is widened, and what is written is rounded once, to the nearest value with ties to even; NaN stays
/// NaN. Statistics, and gradients of parameters that are summed over rows, are always f32.
///
/// # Panics
/// Kernels panic when operands do not fit the given sizes or dtypes: a fault of the calling code, since sizes of a
/// model are checked when it is built.
pub trait Backend: Send + Sync {
    /// The device whose memory the kernels work on; none: the host's.
    fn device(&self) -> Option<Arc<dyn Device>> {
        None
    }

    /// Host threads that kernels run on.
    fn threads(&self) -> usize;
    /// Floating-point operations of [`gemm`](Self::gemm) and attention executed so far, two per multiply-add.
    fn flops(&self) -> u64;
    /// Counts work that is done again as it was recorded, without being asked for anew.
    fn count_flops(&self, flops: u64);

    /// Matrix product; see [`Gemm`].
    ///
    /// `a` and `b` are of type `T`; `c` is of type `T` or f32. Sums are f32 in either case.
    fn gemm(&self, g: &Gemm, a: View, b: View, c: ViewMut);

    /// Whether there are products [with endings](Self::gemm_with): then it pays to see what is done with a result before it is
    /// computed.
    fn has_endings(&self) -> bool {
        false
    }
    /// [`gemm`](Self::gemm) and what `ending` says, at once; sums are rounded after it. Returns false, and does nothing, where
    /// there are no such products of these operands.
    fn gemm_with(&self, _: &Gemm, _: View, _: View, _: GemmEnding<'_>, _: ViewMut) -> bool {
        false
    }

    /// Evaluates an element-wise expression; `out` is written.
    fn map(&self, expr: &Expr, leaves: &[View], out: ViewMut);
    /// Gradients of the leaves of an element-wise expression, given the gradient of its result.
    ///
    /// `leaf_grads` has one entry per leaf; the gradient of a [`Row`](super::Node::Row) leaf is f32, summed over rows.
    fn map_backward(
        &self,
        expr: &Expr,
        leaves: &[View],
        grad: View,
        leaf_grads: &mut [Option<LeafGrad>],
    );

    /// `y = x * inv_rms * weight` with `inv_rms = 1 / sqrt(mean(x^2) + eps)` per row (Zhang and Sennrich 2019).
    ///
    /// `x`, `y`: `[rows, cols]`, `weight`: `[cols]`, `inv_rms`: f32 `[rows]`; `y` and `inv_rms` are written.
    fn rms_norm(&self, x: View, weight: View, eps: f32, y: ViewMut, inv_rms: ViewMut);
    /// Backward of [`rms_norm`](Self::rms_norm): `dx`, and `dweight` in f32.
    ///
    /// A `dx` that is added to is the gradient that the input has by another way, around the norm.
    fn rms_norm_backward(
        &self,
        x: View,
        weight: View,
        inv_rms: View,
        dy: View,
        dx: LeafGrad,
        dweight: Option<LeafGrad>,
    );

    /// `sum = x + residual`, rounded, and [`rms_norm`](Self::rms_norm) of that; all of them are of type `T`.
    #[allow(clippy::too_many_arguments)]
    fn residual_rms_norm(
        &self,
        x: View,
        residual: View,
        weight: View,
        eps: f32,
        mut sum: ViewMut,
        y: ViewMut,
        inv_rms: ViewMut,
    ) {
        self.map(&Expr::sum(), &[x, residual], sum.reborrow());
        self.rms_norm(sum.as_view(), weight, eps, y, inv_rms);
    }

    /// `y = (x - mean) * inv_std * weight + bias` with `inv_std = 1 / sqrt(var + eps)` per row, `var` the biased
    /// variance (Ba, Kiros and Hinton 2016).
    ///
    /// `x`, `y`: `[rows, cols]`, `weight`, `bias`: `[cols]`, `mean`, `inv_std`: f32 `[rows]`.
    #[allow(clippy::too_many_arguments)]
    fn layer_norm(
        &self,
        x: View,
        weight: View,
        bias: View,
        eps: f32,
        y: ViewMut,
        mean: ViewMut,
        inv_std: ViewMut,
    );
    /// Backward of [`layer_norm`](Self::layer_norm): `dx`, and `dweight` and `dbias` in f32.
    #[allow(clippy::too_many_arguments)]
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
    );

    /// `sum = x + residual`, rounded, and [`layer_norm`](Self::layer_norm) of that; all of them are of type `T`.
    #[allow(clippy::too_many_arguments)]
    fn residual_layer_norm(
        &self,
        x: View,
        residual: View,
        weight: View,
        bias: View,
        eps: f32,
        mut sum: ViewMut,
        y: ViewMut,
        mean: ViewMut,
        inv_std: ViewMut,
    ) {
        self.map(&Expr::sum(), &[x, residual], sum.reborrow());
        self.layer_norm(sum.as_view(), weight, bias, eps, y, mean, inv_std);
    }

    /// `y` is `x` with pairs `(j, j + head_dim / 2)` of every head rotated, the layout of Hugging Face's Llama.
    ///
    /// `cos`, `sin`: f32 `[seq, head_dim / 2]`. `inverse` rotates back, which is also the backward pass.
    fn rope(&self, s: &RopeShape, x: View, cos: View, sin: View, inverse: bool, y: ViewMut);

    /// `out = softmax(q * k^T * scale) * v` without a `seq x seq` matrix (Dao et al. 2022); see [`AttentionShape`].
    ///
    /// `lse`: f32 `[batch, heads, seq]`, the logarithm of the sum of exponentials of each row's scaled scores. With
    /// bf16 operands, weights (and in backward gradients of scores) may be rounded before they are multiplied.
    fn attention(&self, s: &AttentionShape, q: View, k: View, v: View, out: ViewMut, lse: ViewMut);
    /// Backward of [`attention`](Self::attention): `dq`, `dk` and `dv` are written.
    #[allow(clippy::too_many_arguments)]
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
    );

    /// Gathers rows of `table[rows, cols]`; a token outside `first_row..first_row + rows` gives zeros.
    ///
    /// `tokens`: u32, one per row of `out[tokens, cols]`.
    fn embedding(&self, tokens: View, table: View, first_row: usize, out: ViewMut);
    /// Backward of [`embedding`](Self::embedding): rows of `dout[tokens, cols]` are accumulated into
    /// `dtable[rows, cols]` (f32), in the order of tokens. Of a token that occurs often, a backend may add up parts of
    /// its occurrences first.
    fn embedding_backward(&self, tokens: View, first_row: usize, dout: View, dtable: ViewMut);

    /// Softmax over rows of `cols` elements.
    fn softmax(&self, cols: usize, x: View, y: ViewMut);
    /// Backward of [`softmax`](Self::softmax) from its result: `dx = y * (dy - sum(y * dy))`.
    fn softmax_backward(&self, cols: usize, y: View, dy: View, dx: ViewMut);

    /// Largest element (f32) per row of `cols` elements; a NaN in the row gives NaN.
    fn row_max(&self, cols: usize, x: View, max: ViewMut);
    /// Per row of `logits[rows, cols]`: `sum_exp = sum(exp(logit - max))`, and in `target_logit` the logit of the
    /// target where it lies in `first_col..first_col + cols`, else 0. `targets`: u32; all but `logits` else: f32.
    #[allow(clippy::too_many_arguments)]
    fn exp_sum(
        &self,
        cols: usize,
        logits: View,
        max: View,
        targets: View,
        first_col: usize,
        sum_exp: ViewMut,
        target_logit: ViewMut,
    );
    /// [`row_max`](Self::row_max) and [`exp_sum`](Self::exp_sum) with that maximum.
    #[allow(clippy::too_many_arguments)]
    fn max_exp_sum(
        &self,
        cols: usize,
        logits: View,
        targets: View,
        first_col: usize,
        mut max: ViewMut,
        sum_exp: ViewMut,
        target_logit: ViewMut,
    ) {
        self.row_max(cols, logits, max.reborrow());
        let max = max.as_view();
        self.exp_sum(cols, logits, max, targets, first_col, sum_exp, target_logit);
    }
    /// `sum = sum(max + ln(sum_exp) - target_logit)` over the rows whose target is not `u32::MAX`, added up in f64: the
    /// cross-entropy of all rows together.
    ///
    /// `max`, `sum_exp`, `target_logit`: f32 `[rows]`, `targets`: u32 `[rows]`, `sum`: f32 `[1]`, written.
    fn cross_entropy_loss(
        &self,
        max: View,
        sum_exp: View,
        target_logit: View,
        targets: View,
        sum: ViewMut,
    );
    /// Replaces `logits[rows, cols]` by `(exp(logit - max) / sum_exp - [column is the target]) * row_scale`.
    ///
    /// `max`, `sum_exp`, `row_scale`: f32. A `row_scale` of 0 gives zeros whatever the logits are.
    #[allow(clippy::too_many_arguments)]
    fn cross_entropy_grad(
        &self,
        cols: usize,
        logits: ViewMut,
        max: View,
        sum_exp: View,
        targets: View,
        first_col: usize,
        row_scale: View,
    );

    /// [`max_exp_sum`](Self::max_exp_sum) of the rows of `logits`, and [`cross_entropy_grad`](Self::cross_entropy_grad)
    /// with these statistics: for a rank that has all columns of the vocabulary, and needs no others' to go on.
    #[allow(clippy::too_many_arguments)]
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
    );

    /// `y[outer, inner] = scale * sum over the middle of x[outer, n, inner]`; `x` is f32 or bf16, and so is `y`.
    fn sum_dim(&self, outer: usize, n: usize, inner: usize, x: View, y: ViewMut, scale: f32);
    /// `dx[outer, n, inner] = scale * dy[outer, inner]` for every middle index; `dy` is f32 or bf16, and so is `dx`.
    fn broadcast_dim(
        &self,
        outer: usize,
        n: usize,
        inner: usize,
        dy: View,
        dx: ViewMut,
        scale: f32,
    );

    /// Copies `blocks` runs of `len` elements; run `i` goes from `src_start + i * src_stride` to
    /// `dst_start + i * dst_stride`. Both operands have the same dtype; runs of `dst` do not overlap.
    #[allow(clippy::too_many_arguments)]
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
    );

    /// `dst = src`, each f32 or bf16.
    fn cast(&self, src: View, dst: ViewMut);
    /// `dst += src`, each f32 or bf16.
    fn add_assign(&self, dst: ViewMut, src: View);
    /// `dst += weight * (src - dst)`, each f32 or bf16: an exponential moving average of `src`.
    fn lerp(&self, dst: ViewMut, src: View, weight: f32);
    /// Sets every element to `value`.
    fn fill(&self, dst: ViewMut, value: f32);
    /// `dst *= factor`.
    fn scale(&self, dst: ViewMut, factor: f32);

    /// Sum of squares in f64, in an order that depends on the length alone.
    fn sum_squares(&self, x: View) -> f64;
    /// The [`sum_squares`](Self::sum_squares) of all `parts`, added in their order.
    fn sum_squares_of(&self, parts: &[View]) -> f64 {
        parts.iter().map(|part| self.sum_squares(*part)).sum()
    }

    /// One optimiser step; see [`AdamStep`].
    ///
    /// `p`, `m`, `v`: f32; `g`: f32 or bf16. The new parameter is written to `copy` too, in its dtype.
    fn adamw(
        &self,
        step: &AdamStep,
        p: ViewMut,
        g: View,
        m: ViewMut,
        v: ViewMut,
        copy: Option<ViewMut>,
    );
    /// One optimiser step; see [`SgdStep`].
    ///
    /// `p`, `momentum`: f32; `g`: f32 or bf16. The new parameter is written to `copy` too, in its dtype.
    fn sgd(
        &self,
        step: &SgdStep,
        p: ViewMut,
        g: View,
        momentum: Option<ViewMut>,
        copy: Option<ViewMut>,
    );

    /// One step of a user-defined optimizer, elementwise.
    fn apply_update(&self, expr: &UpdateExpr, operands: UpdateOperands<'_>);

    /// Normal deviates of mean 0 and standard deviation `std`, each a function of `key` and its global index.
    fn normal(&self, key: u64, std: f32, index: &BlockIndex, out: ViewMut);
}

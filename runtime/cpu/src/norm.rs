//! RMSNorm and LayerNorm over rows.

use std::ops::Range;

use super::CpuBackend;
use super::float::{Float, by_float};
use super::math::{fma, lane_sum};
use super::scratch::with_scratch;
use super::simd::dispatch;
use super::workers::{Rows, Workers};
use meshwright_backend::ops::norm::{
    GainAndGradient, LayerNormArgs, LayerNormBackwardArgs, RmsNormArgs, RmsNormBackwardArgs,
    RmsNormSumsArgs, RowSums,
};
use meshwright_backend::{Element, ElementwiseOps, Expr, LeafGrad, NormOps, ResidualSum, View};

/// Rows per partial sum of a parameter gradient.
const CHUNK: usize = 128;

impl NormOps for CpuBackend {
    fn rms_norm(&self, mut args: RmsNormArgs) {
        let x = self.add_residual(args.x, &mut args.residual);
        by_float!(x.dtype() => T; rms_norm::<T>(&self.workers, RmsNormArgs { x, residual: None, ..args }));
    }

    fn rms_norm_backward(&self, args: RmsNormBackwardArgs) {
        by_float!(args.x.dtype() => T; rms_norm_backward::<T>(&self.workers, args));
    }

    fn rms_norm_sums(&self, args: RmsNormSumsArgs) {
        by_float!(args.x.dtype() => T; rms_norm_sums::<T>(&self.workers, args));
    }

    fn layer_norm(&self, mut args: LayerNormArgs) {
        let x = self.add_residual(args.x, &mut args.residual);
        by_float!(x.dtype() => T; layer_norm::<T>(&self.workers, LayerNormArgs { x, residual: None, ..args }));
    }

    fn layer_norm_backward(&self, args: LayerNormBackwardArgs) {
        by_float!(args.x.dtype() => T; layer_norm_backward::<T>(&self.workers, args));
    }
}

impl CpuBackend {
    /// Returns the input of a norm, after its residual was added.
    fn add_residual<'r>(&self, x: View<'r>, residual: &'r mut Option<ResidualSum<'_>>) -> View<'r> {
        let Some(ResidualSum { term, sum }) = residual else { return x };
        self.map(&Expr::sum(), &[x, *term], sum.reborrow());
        sum.as_view()
    }
}

/// The destination of a gradient.
struct GradTarget<'a, T> {
    to: &'a mut [T],
    accumulate: bool,
}

impl<'a, T: Element> From<LeafGrad<'a>> for GradTarget<'a, T> {
    fn from(LeafGrad { view, accumulate }: LeafGrad<'a>) -> Self {
        GradTarget { to: view.into_typed(), accumulate }
    }
}

impl GradTarget<'_, f32> {
    /// Writes the sums over the rows of `partial`, first row first.
    fn put_sums(self, partial: &[f32]) {
        with_scratch(self.to.len(), |sums| {
            sums.fill(0.0);
            add_rows(partial, sums);
            if self.accumulate {
                add_rows(sums, self.to);
            } else {
                self.to.copy_from_slice(sums);
            }
        });
    }
}

fn rms_norm<T: Float>(workers: &Workers, args: RmsNormArgs) {
    let RmsNormArgs { x, weight, offset, eps, squares, mut y, mut inv_rms, .. } = args;
    let (x, weight, y, inv_rms) = (x.typed::<T>(), weight.typed(), y.typed(), inv_rms.typed());
    let (rows, cols) = (inv_rms.len(), weight.len());
    assert_eq!([x.len(), y.len()], [rows * cols; 2], "rms_norm: {rows} rows of {cols}");
    workers.rows(rows, cols, (Rows(y, cols), Rows(inv_rms, 1)), |range, (y, inv_rms)| {
        let squares = given_sums(squares, range.clone());
        let x = &x[range.start * cols..range.end * cols];
        rms_rows(x, weight, offset, eps, squares, y.0, inv_rms.0);
    });
}

dispatch! {
    fn rms_rows<const FMA: bool, T: Float>(
        x: &[T],
        weight: &[T],
        offset: f32,
        eps: f32,
        squares: Option<(&[f32], usize)>,
        y: &mut [T],
        inv_rms: &mut [f32],
    ) {
        let cols = weight.len();
        for (row, inv_rms) in inv_rms.iter_mut().enumerate() {
            let x = &x[row * cols..][..cols];
            let y = &mut y[row * cols..][..cols];
            let mean = match squares {
                Some((squares, of_whole_row)) => squares[row] / of_whole_row as f32,
                None => lane_sum([x], |[x]| x * x) / cols as f32,
            };
            let inv = 1.0 / (mean + eps).sqrt();
            *inv_rms = inv;
            for i in 0..cols {
                y[i] = T::narrow_from_f32(x[i].widen_to_f32() * inv * (weight[i].widen_to_f32() + offset));
            }
        }
    }
}

fn rms_norm_backward<T: Float>(workers: &Workers, args: RmsNormBackwardArgs) {
    let RmsNormBackwardArgs { x, weight, offset, inv_rms, dy, dots, dx, dweight } = args;
    let (x, weight, inv_rms, dy) = (x.typed::<T>(), weight.typed(), inv_rms.typed(), dy.typed());
    let (rows, cols) = (inv_rms.len(), weight.len());
    let GradTarget { to: dx, accumulate } = dx.into();
    assert_eq!([x.len(), dy.len(), dx.len()], [rows * cols; 3], "rms_norm: {rows} rows of {cols}");
    let chunks = rows.div_ceil(CHUNK);
    with_scratch(chunks * cols, |partial| {
        partial.fill(0.0);
        // One row of partial sums per chunk of rows.
        workers.chunks(
            chunks,
            1,
            (Rows(dx, CHUNK * cols), Rows(partial, cols)),
            |range, (dx, sum)| {
                let first = range.start * CHUNK;
                let last = rows.min(first + CHUNK);
                let at = first * cols..last * cols;
                let inv_rms = &inv_rms[first..last];
                let (x, dy) = (&x[at.clone()], &dy[at]);
                let rows =
                    RmsRows { x, weight, offset, inv_rms, dy, dots: given_sums(dots, first..last) };
                rms_rows_backward(rows, dx.0, accumulate, sum.0);
            },
        );
        if let Some(dweight) = dweight {
            GradTarget::from(dweight).put_sums(partial);
        }
    });
}

/// Inputs of the backward of some rows of an RMSNorm.
struct RmsRows<'a, T> {
    x: &'a [T],
    weight: &'a [T],
    offset: f32,
    inv_rms: &'a [f32],
    dy: &'a [T],
    dots: Option<(&'a [f32], usize)>,
}

dispatch! {
    fn rms_rows_backward<const FMA: bool, T: Float>(
        rows: RmsRows<T>,
        dx: &mut [T],
        accumulate: bool,
        dweight: &mut [f32],
    ) {
        let RmsRows { x, weight, offset, inv_rms, dy, dots } = rows;
        let cols = weight.len();
        let dweight = &mut dweight[..cols];
        for (row, &inv) in inv_rms.iter().enumerate() {
            let x = &x[row * cols..][..cols];
            let dy = &dy[row * cols..][..cols];
            let dx = &mut dx[row * cols..][..cols];
            let (dot, of_whole_row) = match dots {
                Some((dots, of_whole_row)) => (dots[row], of_whole_row),
                None => (lane_sum([x, weight, dy], |[x, w, dy]| dy * (w + offset) * x), cols),
            };
            let shift = inv * inv * inv * dot / of_whole_row as f32;
            // Zipped, not indexed: a check of every index would keep the loop over bf16 from being vectorized.
            let gradients = dx.iter_mut().zip(&mut *dweight);
            for (((dx, dweight), (x, dy)), weight) in gradients.zip(x.iter().zip(dy)).zip(weight) {
                let (x, dy) = (x.widen_to_f32(), dy.widen_to_f32());
                let d = inv * dy * (weight.widen_to_f32() + offset) - shift * x;
                *dx = T::narrow_from_f32(if accumulate { dx.widen_to_f32() + d } else { d });
                *dweight = fma::<FMA>(dy, x * inv, *dweight);
            }
        }
    }
}

/// Returns the given sums of some rows, and the columns of whole rows.
fn given_sums(sums: Option<RowSums<'_>>, rows: Range<usize>) -> Option<(&[f32], usize)> {
    sums.map(|RowSums { sums, cols }| (&sums.typed()[rows], cols))
}

fn rms_norm_sums<T: Float>(workers: &Workers, args: RmsNormSumsArgs) {
    let RmsNormSumsArgs { cols, x, factors, mut sums } = args;
    let (x, sums) = (x.typed::<T>(), sums.typed());
    let rows = sums.len();
    assert_eq!(x.len(), rows * cols, "rms_norm: {rows} rows of {cols}");
    let factors = factors.map(|GainAndGradient { weight, offset, dy }| {
        assert_eq!((weight.len(), dy.len()), (cols, x.len()), "rms_norm: {rows} rows of {cols}");
        (weight.typed(), offset, dy.typed())
    });
    workers.rows(rows, cols, Rows(sums, 1), |range, sums| {
        let at = range.start * cols..range.end * cols;
        let factors = factors
            .map(|(weight, offset, dy): (&[T], f32, &[T])| (weight, offset, &dy[at.clone()]));
        sum_rows(&x[at], cols, factors, sums.0);
    });
}

dispatch! {
    fn sum_rows<const FMA: bool, T: Float>(
        x: &[T],
        cols: usize,
        factors: Option<(&[T], f32, &[T])>,
        sums: &mut [f32],
    ) {
        for (row, sum) in sums.iter_mut().enumerate() {
            let x = &x[row * cols..][..cols];
            *sum = match factors {
                Some((weight, offset, dy)) => {
                    let dy = &dy[row * cols..][..cols];
                    lane_sum([x, weight, dy], |[x, w, dy]| dy * (w + offset) * x)
                }
                None => lane_sum([x], |[x]| x * x),
            };
        }
    }
}

fn layer_norm<T: Float>(workers: &Workers, args: LayerNormArgs) {
    let LayerNormArgs { x, weight, bias, eps, mut y, mut mean, mut inv_std, .. } = args;
    let (x, weight, bias, y) = (x.typed::<T>(), weight.typed(), bias.typed(), y.typed());
    let (mean, inv_std) = (mean.typed(), inv_std.typed());
    let (rows, cols) = (inv_std.len(), weight.len());
    assert_eq!([x.len(), y.len()], [rows * cols; 2], "layer_norm: {rows} rows of {cols}");
    assert_eq!((bias.len(), mean.len()), (cols, rows), "layer_norm: {rows} rows of {cols}");
    let outputs = (Rows(y, cols), Rows(mean, 1), Rows(inv_std, 1));
    workers.rows(rows, cols, outputs, |range, (y, mean, inv_std)| {
        let x = &x[range.start * cols..range.end * cols];
        layer_rows(x, weight, bias, eps, y.0, mean.0, inv_std.0);
    });
}

dispatch! {
    fn layer_rows<const FMA: bool, T: Float>(
        x: &[T],
        weight: &[T],
        bias: &[T],
        eps: f32,
        y: &mut [T],
        mean: &mut [f32],
        inv_std: &mut [f32],
    ) {
        let cols = weight.len();
        let bias = &bias[..cols];
        for row in 0..mean.len() {
            let x = &x[row * cols..][..cols];
            let y = &mut y[row * cols..][..cols];
            let mu = lane_sum([x], |[x]| x) / cols as f32;
            let var = lane_sum([x], |[x]| (x - mu) * (x - mu)) / cols as f32;
            let inv = 1.0 / (var + eps).sqrt();
            (mean[row], inv_std[row]) = (mu, inv);
            for i in 0..cols {
                let normal = (x[i].widen_to_f32() - mu) * inv;
                y[i] = T::narrow_from_f32(fma::<FMA>(normal, weight[i].widen_to_f32(), bias[i].widen_to_f32()));
            }
        }
    }
}

fn layer_norm_backward<T: Float>(workers: &Workers, args: LayerNormBackwardArgs) {
    let LayerNormBackwardArgs { x, weight, mean, inv_std, dy, dx, dweight, dbias } = args;
    let (x, weight, dy) = (x.typed::<T>(), weight.typed(), dy.typed());
    let (mean, inv_std) = (mean.typed(), inv_std.typed());
    let (rows, cols) = (inv_std.len(), weight.len());
    let GradTarget { to: dx, accumulate } = dx.into();
    assert_eq!(
        [x.len(), dy.len(), dx.len()],
        [rows * cols; 3],
        "layer_norm: {rows} rows of {cols}"
    );
    assert_eq!(mean.len(), rows, "layer_norm: {rows} rows of {cols}");
    let chunks = rows.div_ceil(CHUNK);
    with_scratch(2 * chunks * cols, |partial| {
        partial.fill(0.0);
        let (weight_sums, bias_sums) = partial.split_at_mut(chunks * cols);
        let outputs =
            (Rows(dx, CHUNK * cols), Rows(&mut *weight_sums, cols), Rows(&mut *bias_sums, cols));
        workers.chunks(chunks, 1, outputs, |range, (dx, weight_sum, bias_sum)| {
            let first = range.start * CHUNK;
            let last = rows.min(first + CHUNK);
            let at = first * cols..last * cols;
            let rows = LayerRows {
                x: &x[at.clone()],
                weight,
                mean: &mean[first..last],
                inv_std: &inv_std[first..last],
                dy: &dy[at],
            };
            layer_rows_backward(rows, dx.0, accumulate, weight_sum.0, bias_sum.0);
        });
        if let Some(dweight) = dweight {
            GradTarget::from(dweight).put_sums(weight_sums);
        }
        if let Some(dbias) = dbias {
            GradTarget::from(dbias).put_sums(bias_sums);
        }
    });
}

/// Inputs of the backward of some rows.
struct LayerRows<'a, T> {
    x: &'a [T],
    weight: &'a [T],
    mean: &'a [f32],
    inv_std: &'a [f32],
    dy: &'a [T],
}

dispatch! {
    fn layer_rows_backward<const FMA: bool, T: Float>(
        rows: LayerRows<T>,
        dx: &mut [T],
        accumulate: bool,
        dweight: &mut [f32],
        dbias: &mut [f32],
    ) {
        let LayerRows { x, weight, mean, inv_std, dy } = rows;
        let cols = weight.len();
        let (dweight, dbias) = (&mut dweight[..cols], &mut dbias[..cols]);
        for (row, (&mu, &inv)) in mean.iter().zip(inv_std).enumerate() {
            let x = &x[row * cols..][..cols];
            let dy = &dy[row * cols..][..cols];
            let dx = &mut dx[row * cols..][..cols];
            let sum = lane_sum([dy, weight], |[dy, w]| dy * w) / cols as f32;
            let dot = lane_sum([x, weight, dy], |[x, w, dy]| dy * w * ((x - mu) * inv)) / cols as f32;
            // Zipped as in RMSNorm.
            let gradients = dx.iter_mut().zip(&mut *dweight).zip(&mut *dbias);
            for ((((dx, dweight), dbias), (x, dy)), weight) in
                gradients.zip(x.iter().zip(dy)).zip(weight)
            {
                let (normal, dy) = ((x.widen_to_f32() - mu) * inv, dy.widen_to_f32());
                let d = inv * (dy * weight.widen_to_f32() - sum - normal * dot);
                *dx = T::narrow_from_f32(if accumulate { dx.widen_to_f32() + d } else { d });
                *dweight = fma::<FMA>(dy, normal, *dweight);
                *dbias += dy;
            }
        }
    }
}

/// Adds every row of `partial` to `sum`, first row first.
pub(super) fn add_rows(partial: &[f32], sum: &mut [f32]) {
    if sum.is_empty() {
        return;
    }
    for row in partial.chunks_exact(sum.len()) {
        for (sum, part) in sum.iter_mut().zip(row) {
            *sum += part;
        }
    }
}

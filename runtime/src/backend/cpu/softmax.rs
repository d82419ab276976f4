//! Softmax, and the pieces of a cross-entropy whose vocabulary may be cut over ranks.

use super::float::{Float, store, workplace, workplace_len};
use super::math::{exp, lane_max, lane_sum, larger};
use super::scratch::with_scratch;
use super::simd::dispatch;
use super::workers::{Rows, Workers};

pub(super) fn softmax<T: Float>(workers: &Workers, cols: usize, x: &[T], y: &mut [T]) {
    assert_eq!(x.len(), y.len(), "softmax: operands of one size");
    let rows = row_count(x.len(), cols);
    workers.rows(rows, cols, Rows(y, cols), |range, y| {
        let x = &x[range.start * cols..range.end * cols];
        with_scratch(workplace_len::<T>(cols), |scratch| softmax_rows(cols, x, y.0, scratch));
    });
}

/// Rows of `cols` elements in `len`.
fn row_count(len: usize, cols: usize) -> usize {
    assert!(cols > 0 && len.is_multiple_of(cols), "{len} elements are whole rows of {cols}");
    len / cols
}

dispatch! {
    fn softmax_rows<const FMA: bool, T: Float>(
        cols: usize, x: &[T], y: &mut [T], scratch: &mut [f32],
    ) {
        for (x, y) in x.chunks_exact(cols).zip(y.chunks_exact_mut(cols)) {
            let max = lane_max(x, larger);
            let weights = workplace(&mut *y, &mut *scratch);
            for i in 0..cols {
                weights[i] = exp::<FMA>(x[i].widen() - max);
            }
            let inv = 1.0 / lane_sum([&*weights], |[weight]| weight);
            for weight in weights {
                *weight *= inv;
            }
            store(scratch, y);
        }
    }
}

pub(super) fn softmax_backward<T: Float>(
    workers: &Workers,
    cols: usize,
    y: &[T],
    dy: &[T],
    dx: &mut [T],
) {
    assert_eq!([y.len(), dy.len()], [dx.len(); 2], "softmax: operands of one size");
    workers.rows(row_count(y.len(), cols), cols, Rows(dx, cols), |range, dx| {
        let range = range.start * cols..range.end * cols;
        softmax_rows_backward(cols, &y[range.clone()], &dy[range], dx.0);
    });
}

dispatch! {
    fn softmax_rows_backward<const FMA: bool, T: Float>(cols: usize, y: &[T], dy: &[T], dx: &mut [T]) {
        let rows = y.chunks_exact(cols).zip(dy.chunks_exact(cols));
        for ((y, dy), dx) in rows.zip(dx.chunks_exact_mut(cols)) {
            let dot = lane_sum([y, dy], |[y, dy]| y * dy);
            for i in 0..cols {
                dx[i] = T::narrow(y[i].widen() * (dy[i].widen() - dot));
            }
        }
    }
}

pub(super) fn row_max<T: Float>(workers: &Workers, cols: usize, x: &[T], max: &mut [f32]) {
    assert_eq!(row_count(x.len(), cols), max.len(), "row_max: one result per row");
    workers.rows(max.len(), cols, Rows(max, 1), |range, max| {
        max_rows(cols, &x[range.start * cols..range.end * cols], max.0);
    });
}

dispatch! {
    fn max_rows<const FMA: bool, T: Float>(cols: usize, x: &[T], max: &mut [f32]) {
        for (x, max) in x.chunks_exact(cols).zip(max) {
            *max = lane_max(x, larger);
        }
    }
}

#[allow(clippy::too_many_arguments)]
pub(super) fn exp_sum<T: Float>(
    workers: &Workers,
    cols: usize,
    logits: &[T],
    max: &[f32],
    targets: &[u32],
    first_col: usize,
    sum_exp: &mut [f32],
    target_logit: &mut [f32],
) {
    let rows = row_count(logits.len(), cols);
    let lens = [max.len(), targets.len(), sum_exp.len(), target_logit.len()];
    assert_eq!(lens, [rows; 4], "exp_sum: {rows} rows");
    let outputs = (Rows(sum_exp, 1), Rows(target_logit, 1));
    workers.rows(rows, cols, outputs, |range, (sum_exp, target_logit)| {
        for (i, row) in range.enumerate() {
            let logits = &logits[row * cols..][..cols];
            sum_exp.0[i] = exp_sum_row(logits, max[row]);
            target_logit.0[i] =
                local_target(targets[row], first_col, cols).map_or(0.0, |t| logits[t].widen());
        }
    });
}

pub(super) fn cross_entropy_loss(statistics: [&[f32]; 3], targets: &[u32]) -> f32 {
    let [max, sum_exp, target_logit] = statistics;
    assert_eq!(statistics.map(<[f32]>::len), [targets.len(); 3], "cross_entropy_loss: rows");
    let loss = |(row, target): (usize, &u32)| {
        let counts = *target != u32::MAX;
        let row_loss =
            || f64::from(max[row]) + f64::from(sum_exp[row]).ln() - f64::from(target_logit[row]);
        if counts { row_loss() } else { 0.0 }
    };
    targets.iter().enumerate().map(loss).sum::<f64>() as f32
}

/// The column of a target among `cols` columns from `first_col` on.
fn local_target(target: u32, first_col: usize, cols: usize) -> Option<usize> {
    (target as usize).checked_sub(first_col).filter(|col| *col < cols)
}

dispatch! {
    fn exp_sum_row<const FMA: bool, T: Float>(logits: &[T], max: f32) -> f32 {
        lane_sum([logits], |[logit]| exp::<FMA>(logit - max))
    }
}

#[allow(clippy::too_many_arguments)]
pub(super) fn cross_entropy_grad<T: Float>(
    workers: &Workers,
    cols: usize,
    logits: &mut [T],
    max: &[f32],
    sum_exp: &[f32],
    targets: &[u32],
    first_col: usize,
    row_scale: &[f32],
) {
    let rows = row_count(logits.len(), cols);
    let lens = [max.len(), sum_exp.len(), targets.len(), row_scale.len()];
    assert_eq!(lens, [rows; 4], "cross_entropy_grad: {rows} rows");
    workers.rows(rows, cols, Rows(logits, cols), |range, logits| {
        for (row, logits) in range.zip(logits.0.chunks_exact_mut(cols)) {
            let target = local_target(targets[row], first_col, cols);
            gradient_of_row(logits, max[row], sum_exp[row], target, row_scale[row]);
        }
    });
}

/// Maximum, sum and gradient of each row before those of the next, while the row is in the cache of its core.
/// `statistics` are the maxima, the sums and the targets' logits.
pub(super) fn cross_entropy<T: Float>(
    workers: &Workers,
    cols: usize,
    logits: &mut [T],
    targets: &[u32],
    first_col: usize,
    row_scale: &[f32],
    statistics: [&mut [f32]; 3],
) {
    let rows = row_count(logits.len(), cols);
    let [max, sum_exp, target_logit] = statistics;
    let lens = [max.len(), sum_exp.len(), target_logit.len(), targets.len(), row_scale.len()];
    assert_eq!(lens, [rows; 5], "cross_entropy: {rows} rows");
    let statistics = (Rows(max, 1), Rows(sum_exp, 1), Rows(target_logit, 1));
    let outputs = (Rows(logits, cols), statistics);
    workers.rows(rows, cols, outputs, |range, (logits, (max, sum_exp, target_logit))| {
        for (i, (row, logits)) in range.zip(logits.0.chunks_exact_mut(cols)).enumerate() {
            let target = local_target(targets[row], first_col, cols);
            max_rows(cols, logits, &mut max.0[i..=i]);
            sum_exp.0[i] = exp_sum_row(logits, max.0[i]);
            target_logit.0[i] = target.map_or(0.0, |t| logits[t].widen());
            gradient_of_row(logits, max.0[i], sum_exp.0[i], target, row_scale[row]);
        }
    });
}

fn gradient_of_row<T: Float>(
    logits: &mut [T],
    max: f32,
    sum_exp: f32,
    target: Option<usize>,
    scale: f32,
) {
    if scale == 0.0 {
        logits.fill(T::ZERO);
    } else {
        probabilities(logits, max, scale / sum_exp, target, scale);
    }
}

dispatch! {
    /// `exp(logit - max) * factor`, less `shift` at the target: rounded once there too.
    fn probabilities<const FMA: bool, T: Float>(
        logits: &mut [T], max: f32, factor: f32, target: Option<usize>, shift: f32,
    ) {
        let at_target = target.map(|target| (target, logits[target]));
        for logit in &mut *logits {
            *logit = T::narrow(exp::<FMA>(logit.widen() - max) * factor);
        }
        if let Some((target, logit)) = at_target {
            logits[target] = T::narrow(exp::<FMA>(logit.widen() - max) * factor - shift);
        }
    }
}

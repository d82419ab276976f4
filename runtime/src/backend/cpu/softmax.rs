//! Softmax, and the pieces of a cross-entropy whose vocabulary may be cut over ranks.

use super::math::{exp, lane_max, lane_sum, larger};
use super::simd::dispatch;
use super::workers::{Rows, Workers};

pub(super) fn softmax(workers: &Workers, cols: usize, x: &[f32], y: &mut [f32]) {
    assert_eq!(x.len(), y.len(), "softmax: operands of one size");
    let rows = row_count(x.len(), cols);
    workers.rows(rows, cols, Rows(y, cols), |range, y| {
        softmax_rows(cols, &x[range.start * cols..range.end * cols], y.0);
    });
}

/// Rows of `cols` elements in `len`.
fn row_count(len: usize, cols: usize) -> usize {
    assert!(cols > 0 && len.is_multiple_of(cols), "{len} elements are whole rows of {cols}");
    len / cols
}

dispatch! {
    fn softmax_rows<const FMA: bool>(cols: usize, x: &[f32], y: &mut [f32]) {
        for (x, y) in x.chunks_exact(cols).zip(y.chunks_exact_mut(cols)) {
            let max = lane_max(x, larger);
            for i in 0..cols {
                y[i] = exp::<FMA>(x[i] - max);
            }
            let inv = 1.0 / lane_sum([y], |[y]| y);
            for y in y {
                *y *= inv;
            }
        }
    }
}

pub(super) fn softmax_backward(
    workers: &Workers,
    cols: usize,
    y: &[f32],
    dy: &[f32],
    dx: &mut [f32],
) {
    assert_eq!([y.len(), dy.len()], [dx.len(); 2], "softmax: operands of one size");
    workers.rows(row_count(y.len(), cols), cols, Rows(dx, cols), |range, dx| {
        let range = range.start * cols..range.end * cols;
        softmax_rows_backward(cols, &y[range.clone()], &dy[range], dx.0);
    });
}

dispatch! {
    fn softmax_rows_backward<const FMA: bool>(cols: usize, y: &[f32], dy: &[f32], dx: &mut [f32]) {
        let rows = y.chunks_exact(cols).zip(dy.chunks_exact(cols));
        for ((y, dy), dx) in rows.zip(dx.chunks_exact_mut(cols)) {
            let dot = lane_sum([y, dy], |[y, dy]| y * dy);
            for i in 0..cols {
                dx[i] = y[i] * (dy[i] - dot);
            }
        }
    }
}

pub(super) fn row_max(workers: &Workers, cols: usize, x: &[f32], max: &mut [f32]) {
    assert_eq!(row_count(x.len(), cols), max.len(), "row_max: one result per row");
    workers.rows(max.len(), cols, Rows(max, 1), |range, max| {
        max_rows(cols, &x[range.start * cols..range.end * cols], max.0);
    });
}

dispatch! {
    fn max_rows<const FMA: bool>(cols: usize, x: &[f32], max: &mut [f32]) {
        for (x, max) in x.chunks_exact(cols).zip(max) {
            *max = lane_max(x, larger);
        }
    }
}

#[allow(clippy::too_many_arguments)]
pub(super) fn exp_sum(
    workers: &Workers,
    cols: usize,
    logits: &[f32],
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
                local_target(targets[row], first_col, cols).map_or(0.0, |t| logits[t]);
        }
    });
}

/// The column of a target among `cols` columns from `first_col` on.
fn local_target(target: u32, first_col: usize, cols: usize) -> Option<usize> {
    (target as usize).checked_sub(first_col).filter(|col| *col < cols)
}

dispatch! {
    fn exp_sum_row<const FMA: bool>(logits: &[f32], max: f32) -> f32 {
        lane_sum([logits], |[logit]| exp::<FMA>(logit - max))
    }
}

#[allow(clippy::too_many_arguments)]
pub(super) fn cross_entropy_grad(
    workers: &Workers,
    cols: usize,
    logits: &mut [f32],
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
            let scale = row_scale[row];
            if scale == 0.0 {
                logits.fill(0.0);
                continue;
            }
            probabilities(logits, max[row], scale / sum_exp[row]);
            if let Some(target) = local_target(targets[row], first_col, cols) {
                logits[target] -= scale;
            }
        }
    });
}

dispatch! {
    fn probabilities<const FMA: bool>(logits: &mut [f32], max: f32, factor: f32) {
        for logit in logits {
            *logit = exp::<FMA>(*logit - max) * factor;
        }
    }
}

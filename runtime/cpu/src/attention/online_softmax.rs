//! The softmax of tiles, with an online maximum (Dao et al. 2022; Milakov and Gimelshein 2018), and its backward.

use super::mask::VisibleKeys;
use crate::math::{LANES, exp, fma, fold_lanes, lane_max, lane_sum, larger_number};
use crate::simd::dispatch;

/// Returns the number to subtract from scores before their exponentials: their maximum or log-sum-exp, but zero if all
/// scores are `-inf`, so that differences are, too.
#[inline(always)]
fn finite_base(largest: f32) -> f32 {
    if largest == f32::NEG_INFINITY { 0.0 } else { largest }
}

/// The online softmax of rows, over the keys so far.
pub(super) struct OnlineRows<'a> {
    pub(super) max: &'a mut [f32],
    /// Sum of the weights relative to the maximum.
    pub(super) total: &'a mut [f32],
    /// Weighted sum of the values.
    pub(super) sum: &'a mut [f32],
}

dispatch! {
    /// Turns scores of the keys from `start` on into unnormalized weights relative to the running maximum, and rescales
    /// the previous sums. Masked keys get weight zero.
    pub(super) fn online_softmax<const FMA: bool>(
        scores: &mut [f32],
        row_len: usize,
        visible: VisibleKeys,
        start: usize,
        scale: f32,
        rows: OnlineRows,
    ) {
        let OnlineRows { max, total, sum } = rows;
        // Rows whose maxima are found before their weights, so that the CPU need not wait for each one.
        const GROUP: usize = 8;
        let dim = sum.len() / max.len();
        for (group, scores) in scores.chunks_mut(GROUP * row_len).enumerate() {
            let mut new = [0f32; GROUP];
            for (i, scores) in scores.chunks_exact_mut(row_len).enumerate() {
                let row = group * GROUP + i;
                let (first, end) = visible.inside(row, start, row_len);
                let (padded_first, padded_end) = padded_range(first, end, row_len);
                scores[..padded_first].fill(0.0);
                scores[padded_first..first].fill(f32::NEG_INFINITY);
                scores[end..padded_end].fill(f32::NEG_INFINITY);
                scores[padded_end..].fill(0.0);
                // A NaN may get lost here; its weight is NaN all the same.
                let largest = scale * lane_max(&scores[padded_first..padded_end], larger_number);
                new[i] = larger_number(max[row], largest);
            }
            for (i, scores) in scores.chunks_exact_mut(row_len).enumerate() {
                let row = group * GROUP + i;
                let (first, end) = visible.inside(row, start, row_len);
                if first == end {
                    continue;
                }
                let (first, end) = padded_range(first, end, row_len);
                let weights = exp_weights::<FMA>(&mut scores[first..end], scale, finite_base(new[i]));
                let old = max[row];
                max[row] = new[i];
                if old == f32::NEG_INFINITY {
                    total[row] = weights;
                } else {
                    let rescale = exp::<FMA>(old - new[i]);
                    total[row] = total[row] * rescale + weights;
                    for sum in &mut sum[row * dim..][..dim] {
                        *sum *= rescale;
                    }
                }
            }
        }
    }
}

/// Returns the range of a row to compute, padded to whole groups of lanes, which are much faster: masked scores in it
/// get weight zero.
#[inline(always)]
fn padded_range(first: usize, end: usize, row_len: usize) -> (usize, usize) {
    (first / LANES * LANES, row_len.min(end.next_multiple_of(LANES)))
}

/// Replaces scores by `exp(scale * score - max)` and returns their sum.
#[inline(always)]
fn exp_weights<const FMA: bool>(scores: &mut [f32], scale: f32, max: f32) -> f32 {
    let mut lanes = [0f32; LANES];
    let mut parts = scores.chunks_exact_mut(LANES);
    for part in &mut parts {
        for (lane, score) in lanes.iter_mut().zip(part) {
            *score = exp::<FMA>(fma::<FMA>(*score, scale, -max));
            *lane += *score;
        }
    }
    for (lane, score) in lanes.iter_mut().zip(parts.into_remainder()) {
        *score = exp::<FMA>(fma::<FMA>(*score, scale, -max));
        *lane += *score;
    }
    fold_lanes(lanes, |a, b| a + b)
}

dispatch! {
    /// `weights`: scores of a block of keys (its start and length) become weights. `dscores`: gradients of weights
    /// become gradients of scores times `scale`. Both are zero for masked keys. `rows`: log-sum-exps and the numbers
    /// that are subtracted from the gradients of weights.
    pub(super) fn softmax_backward<const FMA: bool>(
        weights: &mut [f32],
        dscores: &mut [f32],
        row_len: usize,
        visible: VisibleKeys,
        block: [usize; 2],
        scale: f32,
        rows: [&[f32]; 2],
    ) {
        let ([start, keys], [lse, shift]) = (block, rows);
        let rows = weights.chunks_exact_mut(row_len).zip(dscores.chunks_exact_mut(row_len));
        for (row, (weights, dscores)) in rows.enumerate() {
            let (first, end) = visible.inside(row, start, keys);
            let (lse, shift) = (finite_base(lse[row]), shift[row]);
            // A whole row is much faster than a part: masked scores are computed too, and result in exact zeros.
            weights[..first].fill(f32::NEG_INFINITY);
            dscores[..first].fill(0.0);
            weights[end..].fill(f32::NEG_INFINITY);
            dscores[end..].fill(0.0);
            if visible.are_inside(row, start, keys) {
                for weight in weights.iter_mut() {
                    *weight = exp::<FMA>(fma::<FMA>(*weight, scale, -lse));
                }
                center_gradients(weights, dscores, shift, scale);
                continue;
            }
            for (weight, dscore) in weights.iter_mut().zip(dscores) {
                *weight = exp::<FMA>(fma::<FMA>(*weight, scale, -lse));
                *dscore = *weight * (*dscore - shift) * scale;
            }
        }
    }
}

/// Converts gradients of weights to gradients of scores, times `factor`, in a row with all keys that its query sees.
///
/// Their sum is zero, which rounding errors of `shift` and of the gradients of weights add up to otherwise: a key that
/// only these queries see would get noise instead of no gradient. So the rest of the sum is subtracted.
#[inline(always)]
fn center_gradients(weights: &[f32], dscores: &mut [f32], shift: f32, factor: f32) {
    /// The rounding error of a sum of weights.
    const ERROR: f32 = 4.0 * f32::EPSILON;
    let total = lane_sum([weights], |[weight]| weight);
    let rest = lane_sum([weights, &*dscores], |[weight, dweight]| weight * (dweight - shift));
    // With a sink, or if other keys are in another call, these are not all weights.
    let mean = if (total - 1.0).abs() <= ERROR { rest / total } else { 0.0 };
    for (weight, dscore) in weights.iter().zip(dscores) {
        *dscore = *weight * ((*dscore - shift) - mean) * factor;
    }
}

dispatch! {
    /// Multiplies the gradients of visible scores by their derivatives.
    pub(super) fn multiply_visible<const FMA: bool>(
        dscores: &mut [f32],
        slopes: &[f32],
        row_len: usize,
        visible: VisibleKeys,
        block: [usize; 2],
    ) {
        let [start, keys] = block;
        let rows = dscores.chunks_exact_mut(row_len).zip(slopes.chunks_exact(row_len));
        for (row, (dscores, slopes)) in rows.enumerate() {
            let (first, end) = visible.inside(row, start, keys);
            for (dscore, slope) in dscores[first..end].iter_mut().zip(&slopes[first..end]) {
                *dscore *= slope;
            }
        }
    }
}

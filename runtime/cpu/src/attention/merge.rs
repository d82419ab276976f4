//! Merging attention over several parts of the keys.

use super::results::InterleavedOutput;
use super::sizes::{check_lse, check_rows};
use crate::simd::dispatch;
use crate::workers::Workers;
use meshwright_backend::AttentionShape;
use meshwright_backend::ops::attention::MergeAttentionArgs;

/// Queries of a task.
const QUERIES: usize = 64;

pub fn merge_attention(workers: &Workers, s: &AttentionShape, args: MergeAttentionArgs) {
    let MergeAttentionArgs { out, lse, sum, sum_lse } = args;
    let (out, lse) = (out.typed::<f32>(), lse.typed::<f32>());
    let (sum, sum_lse) = (sum.into_typed::<f32>(), sum_lse.into_typed::<f32>());
    check_rows(s, s.queries, [s.heads, s.value_dim], &[out.len(), sum.len()]);
    check_lse(s, lse.len());
    check_lse(s, sum_lse.len());
    let (sum, sum_lse) = (InterleavedOutput::new(sum), InterleavedOutput::new(sum_lse));
    let blocks = s.queries.len.div_ceil(QUERIES);
    workers.for_each_task(s.batch * blocks, |task| {
        let (sample, start) = (task / blocks, task % blocks * QUERIES);
        for query in start..s.queries.len.min(start + QUERIES) {
            for head in 0..s.heads {
                let lse_at = (sample * s.heads + head) * s.queries.pitch + query;
                let row_at = ((sample * s.queries.pitch + query) * s.heads + head) * s.value_dim;
                // SAFETY: this sample and query belong to this task alone.
                let sum_lse = unsafe { sum_lse.piece(lse_at, 1) };
                // SAFETY: as above.
                let sum = unsafe { sum.piece(row_at, s.value_dim) };
                merge_row(&out[row_at..][..s.value_dim], lse[lse_at], sum, &mut sum_lse[0]);
            }
        }
    });
}

/// Merges one row. A log-sum-exp of `-inf` means that a query sees no keys.
fn merge_row(out: &[f32], lse: f32, sum: &mut [f32], sum_lse: &mut f32) {
    if lse == f32::NEG_INFINITY {
        return;
    }
    if *sum_lse == f32::NEG_INFINITY {
        sum.copy_from_slice(out);
        *sum_lse = lse;
        return;
    }
    // Only exponentials of negative numbers, which cannot overflow. A NaN in either one stays one.
    let largest = if lse > *sum_lse { lse } else { *sum_lse };
    let merged = largest + (-(lse - *sum_lse).abs()).exp().ln_1p();
    move_toward(out, (lse - merged).exp(), sum);
    *sum_lse = merged;
}

dispatch! {
    fn move_toward<const FMA: bool>(out: &[f32], weight: f32, sum: &mut [f32]) {
        for (sum, out) in sum.iter_mut().zip(out) {
            *sum += weight * (out - *sum);
        }
    }
}

//! The arithmetic of reductions.

use crate::comm::ReduceOp;

/// Elements that are reduced at a time: what is summed up stays in the first-level cache.
pub const BLOCK: usize = 2048;

/// Combines `src` into `acc`, element by element.
pub fn fold(op: ReduceOp, acc: &mut [f32], src: &[f32]) {
    assert_eq!(acc.len(), src.len(), "contributions to a reduction have one length");
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { fold_avx2(op, acc, src) };
    }
    fold_portable(op, acc, src);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn fold_avx2(op: ReduceOp, acc: &mut [f32], src: &[f32]) {
    fold_portable(op, acc, src);
}

#[inline(always)]
fn fold_portable(op: ReduceOp, acc: &mut [f32], src: &[f32]) {
    match op {
        ReduceOp::Sum => acc.iter_mut().zip(src).for_each(|(a, b)| *a += *b),
        // Comparison is false for NaN: a NaN in `src` is taken, one in `acc` is kept.
        ReduceOp::Max => acc
            .iter_mut()
            .zip(src)
            .for_each(|(a, b)| *a = if *a > *b || a.is_nan() { *a } else { *b }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_reductions_agree_with_the_plain_loop_at_every_length() {
        for len in 0..70 {
            let a: Vec<f32> = (0..len).map(|i| (i as f32 * 1.7).sin()).collect();
            let b: Vec<f32> = (0..len).map(|i| (i as f32 * 2.3).cos()).collect();
            let mut sum = a.clone();
            fold(ReduceOp::Sum, &mut sum, &b);
            let mut max = a.clone();
            fold(ReduceOp::Max, &mut max, &b);
            for i in 0..len {
                assert_eq!(sum[i].to_bits(), (a[i] + b[i]).to_bits());
                assert_eq!(max[i], a[i].max(b[i]));
            }
        }
    }

    #[test]
    fn a_nan_on_either_side_is_not_lost() {
        let mut acc = [f32::NAN, 1.0, 1.0];
        fold(ReduceOp::Max, &mut acc, &[2.0, f32::NAN, 3.0]);
        assert!(acc[0].is_nan() && acc[1].is_nan());
        assert_eq!(acc[2], 3.0);
    }
}

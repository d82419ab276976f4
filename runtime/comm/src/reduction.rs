//! Reduction kernels of the host.

use std::ops::Range;

use half::bf16;

use crate::ReduceOp;
use meshwright_backend::{DType, Element};

/// Elements that are reduced at a time: the accumulator fits in the first-level cache.
pub const BLOCK: usize = 2048;

/// An element type of reductions.
pub trait Reducible: Element {
    const ZERO: Self;

    /// Reduces `others`, in their order, into `acc`, which holds the first contribution. None is longer than [`BLOCK`].
    fn reduce<'a>(op: ReduceOp, acc: &mut [Self], others: impl Iterator<Item = &'a [Self]>);
}

impl Reducible for f32 {
    const ZERO: f32 = 0.0;

    fn reduce<'a>(op: ReduceOp, acc: &mut [f32], others: impl Iterator<Item = &'a [f32]>) {
        others.for_each(|src| fold_values(op, acc, src));
    }
}

impl Reducible for f64 {
    const ZERO: f64 = 0.0;

    fn reduce<'a>(op: ReduceOp, acc: &mut [f64], others: impl Iterator<Item = &'a [f64]>) {
        others.for_each(|src| fold_f64(op, acc, src));
    }
}

/// Accumulates in f32, rounded once at the end.
impl Reducible for bf16 {
    const ZERO: bf16 = bf16::ZERO;

    fn reduce<'a>(op: ReduceOp, acc: &mut [bf16], others: impl Iterator<Item = &'a [bf16]>) {
        let mut wide_acc = [0.0; BLOCK];
        let wide_acc = &mut wide_acc[..acc.len()];
        widen(wide_acc, acc);
        let mut wide_src = [0.0; BLOCK];
        for src in others {
            let wide_src = &mut wide_src[..src.len()];
            widen(wide_src, src);
            fold_values(op, wide_acc, wide_src);
        }
        narrow(acc, wide_acc);
    }
}

/// Compiles a loop a second time for CPUs with AVX2, and chooses at run time.
macro_rules! with_avx2 {
    ($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) $body:block) => {
        $(#[$doc])*
        fn $name($($arg: $type),*) {
            #[inline(always)]
            fn portable($($arg: $type),*) $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn avx2($($arg: $type),*) {
                portable($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            if std::arch::is_x86_feature_detected!("avx2") {
                // SAFETY: the CPU has AVX2.
                return unsafe { avx2($($arg),*) };
            }
            portable($($arg),*)
        }
    };
}

/// Defines the fold of one element type, from `src` into `acc`, element by element.
macro_rules! fold {
    ($name:ident, $element:ty) => {
        with_avx2! {
            fn $name(op: ReduceOp, acc: &mut [$element], src: &[$element]) {
                assert_eq!(acc.len(), src.len(), "contributions to a reduction have one length");
                match op {
                    ReduceOp::Sum => acc.iter_mut().zip(src).for_each(|(a, b)| *a += *b),
                    // Comparison is false for NaN: a NaN in `src` is taken, one in `acc` is kept.
                    ReduceOp::Max => acc
                        .iter_mut()
                        .zip(src)
                        .for_each(|(a, b)| *a = if *a > *b || a.is_nan() { *a } else { *b }),
                }
            }
        }
    };
}

fold!(fold_values, f32);
fold!(fold_f64, f64);

with_avx2! {
    fn widen(dst: &mut [f32], src: &[bf16]) {
        dst.iter_mut().zip(src).for_each(|(dst, src)| *dst = src.to_f32());
    }
}

with_avx2! {
    /// Rounds to nearest, ties to even; NaN stays NaN.
    fn narrow(dst: &mut [bf16], src: &[f32]) {
        for (dst, src) in dst.iter_mut().zip(src) {
            let bits = src.to_bits();
            let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1))) >> 16;
            let nan = (bits >> 16) | 0x40;
            *dst = bf16::from_bits(if src.is_nan() { nan } else { rounded } as u16);
        }
    }
}

/// Splits a range into pieces that fit in the first-level cache.
pub fn blocks_of(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(BLOCK).map(move |start| start..(start + BLOCK).min(end))
}

/// Returns the part of `count` elements of `dtype` that `member` processes: whole cache lines, so that no two members
/// write to the same one.
pub fn part_of(dtype: DType, count: usize, members: usize, member: usize) -> Range<usize> {
    let line = 64 / dtype.bytes();
    let lines = count.div_ceil(line);
    let bound = |member: usize| (lines * member / members * line).min(count);
    bound(member)..bound(member + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reductions_match_a_scalar_loop_at_every_length() {
        for len in 0..70 {
            let a: Vec<f32> = (0..len).map(|i| (i as f32 * 1.7).sin()).collect();
            let b: Vec<f32> = (0..len).map(|i| (i as f32 * 2.3).cos()).collect();
            let mut sum = a.clone();
            fold_values(ReduceOp::Sum, &mut sum, &b);
            let mut max = a.clone();
            fold_values(ReduceOp::Max, &mut max, &b);
            for i in 0..len {
                assert_eq!(sum[i].to_bits(), (a[i] + b[i]).to_bits());
                assert_eq!(max[i], a[i].max(b[i]));
            }
        }
    }

    #[test]
    fn max_propagates_nan_from_either_side() {
        let mut acc = [f32::NAN, 1.0, 1.0];
        fold_values(ReduceOp::Max, &mut acc, &[2.0, f32::NAN, 3.0]);
        assert!(acc[0].is_nan() && acc[1].is_nan());
        assert_eq!(acc[2], 3.0);
    }

    #[test]
    fn bf16_sums_are_rounded_once() {
        // 2^-9 is below half of the last place of 1: rounded at each step, the sum would stay 1.
        let small = [bf16::from_f32(2f32.powi(-9))];
        let mut acc = [bf16::ONE];
        bf16::reduce(ReduceOp::Sum, &mut acc, std::iter::repeat_n(&small[..], 8));
        assert_eq!(acc[0].to_f32(), 1.0 + 8.0 * 2f32.powi(-9));
    }

    #[test]
    fn narrowing_rounds_ties_to_even() {
        let lower = [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff];
        let values = |upper: u32| lower.map(|lower| f32::from_bits(upper << 16 | lower));
        let values: Vec<f32> = (0..=0xffff).flat_map(values).collect();
        let mut narrowed = vec![bf16::ZERO; values.len()];
        narrow(&mut narrowed, &values);
        for (value, narrowed) in values.iter().zip(narrowed) {
            assert_eq!(narrowed.to_bits(), bf16::from_f32(*value).to_bits(), "{value:e}");
        }
    }
}

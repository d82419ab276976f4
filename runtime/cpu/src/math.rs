//! Loops over slices in lanes: the same order of additions for every vector width.

use std::ops::Range;

pub(super) use meshwright_backend::math::{cos_turns, exp, fma, log, natural_log, tanh};

use super::float::Float;

/// Lanes of the accumulators of sums: four 512-bit registers, enough to hide the latency of an addition.
pub(super) const LANES: usize = 64;

/// Returns the sum of `f` over the elements of equally long slices, in lanes: the same order for every vector width.
#[inline(always)]
pub(super) fn lane_sum<T: Float, const N: usize>(x: [&[T]; N], f: impl Fn([f32; N]) -> f32) -> f32 {
    let len = x[0].len();
    let x = parts_of(x, 0..len);
    let mut lanes = [0f32; LANES];
    let mut start = 0;
    while start + LANES <= len {
        let x = parts_of(x, start..start + LANES);
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += f(elements_at(x, lane));
        }
        start += LANES;
    }
    let x = parts_of(x, start..len);
    for (lane, sum) in lanes[..len - start].iter_mut().enumerate() {
        *sum += f(elements_at(x, lane));
    }
    fold_lanes(lanes, |a, b| a + b)
}

/// The larger of two numbers; NaN if one is NaN.
#[inline(always)]
pub(super) fn larger(max: f32, x: f32) -> f32 {
    // Comparisons with NaN are false, so NaN needs its own test.
    if x > max || x.is_nan() { x } else { max }
}

/// The larger of two numbers; a NaN is lost if the other one is a number.
///
/// A choice by comparison would be compiled to masked stores, which are slow, where one of the numbers lies in memory.
#[inline(always)]
pub(super) fn larger_number(max: f32, x: f32) -> f32 {
    max.max(x)
}

/// Largest element by [`larger`] or [`larger_number`]; -infinity for none.
#[inline(always)]
pub(super) fn lane_max<T: Float>(x: &[T], larger: impl Fn(f32, f32) -> f32) -> f32 {
    let (chunks, rest) = x.as_chunks::<LANES>();
    // Other lanes than for whole chunks, which stay in registers as no part of them is written.
    let mut last = [f32::NEG_INFINITY; LANES];
    for (lane, x) in last.iter_mut().zip(rest) {
        *lane = x.widen_to_f32();
    }
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, x.widen_to_f32());
        }
    }
    for (lane, last) in lanes.iter_mut().zip(last) {
        *lane = larger(*lane, last);
    }
    fold_lanes(lanes, larger)
}

/// Combines lanes pairwise.
#[inline(always)]
pub(super) fn fold_lanes(lanes: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    let lanes = fold_halves::<64, 32>(lanes, &f);
    let lanes = fold_halves::<32, 16>(lanes, &f);
    let lanes = fold_halves::<16, 8>(lanes, &f);
    let lanes = fold_halves::<8, 4>(lanes, &f);
    let [a, b, c, d] = lanes;
    f(f(a, c), f(b, d))
}

#[inline(always)]
fn fold_halves<const N: usize, const M: usize>(
    x: [f32; N],
    f: impl Fn(f32, f32) -> f32,
) -> [f32; M] {
    let mut y = [0.0; M];
    for i in 0..M {
        y[i] = f(x[i], x[i + M]);
    }
    y
}

/// Returns a range of each slice.
///
/// `x.map(...)` would be compiled once for each caller, and is large.
#[inline(always)]
fn parts_of<T, const N: usize>(mut x: [&[T]; N], range: Range<usize>) -> [&[T]; N] {
    for x in &mut x {
        *x = &x[range.clone()];
    }
    x
}

/// Returns the elements of slices at an index.
///
/// `x.map(...)` would be a function of its own in builds without link-time optimization, called for each index.
#[inline(always)]
fn elements_at<T: Float, const N: usize>(x: [&[T]; N], index: usize) -> [f32; N] {
    let mut elements = [0.0; N];
    for (element, x) in elements.iter_mut().zip(x) {
        *element = x[index].widen_to_f32();
    }
    elements
}

/// Writes `f` of the elements of slices that are at least as long as `out`.
#[inline(always)]
pub(super) fn zip_map<const N: usize>(
    x: [&[f32]; N],
    out: &mut [f32],
    f: impl Fn([f32; N]) -> f32,
) {
    let x = parts_of(x, 0..out.len());
    for (i, out) in out.iter_mut().enumerate() {
        *out = f(elements_at(x, i));
    }
}

/// Adds `f` of the elements of slices that are at least as long as `out`.
#[inline(always)]
pub(super) fn zip_add<const N: usize>(
    x: [&[f32]; N],
    out: &mut [f32],
    f: impl Fn([f32; N]) -> f32,
) {
    let x = parts_of(x, 0..out.len());
    for (i, out) in out.iter_mut().enumerate() {
        *out += f(elements_at(x, i));
    }
}

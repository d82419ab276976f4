//! Scores beyond scaled dot products: soft caps and distance biases.
//!
//! These are passes of their own over a tile, before the softmax.

use std::ops::Range;

use super::mask::VisibleKeys;
use super::sizes::check_heads;
use crate::math::tanh;
use crate::simd::dispatch;
use meshwright_backend::{AttentionShape, DistanceBias};

/// A function of dot products that gives the scores of the softmax.
#[derive(Clone, Copy)]
pub(super) struct Scoring<'a> {
    scale: f32,
    soft_cap: Option<f32>,
    bias: Option<Biases<'a>>,
}

/// The biases of all heads.
#[derive(Clone, Copy)]
struct Biases<'a> {
    values: &'a [f32],
    distances: KeyDistances,
}

/// The distances from queries to keys that have a bias of their own.
#[derive(Clone, Copy)]
pub(super) struct KeyDistances {
    pub count: usize,
    /// Index of the bias of key 0 for query 0, before it is clamped.
    origin: isize,
}

impl KeyDistances {
    pub fn new(s: &AttentionShape, bias: &DistanceBias) -> KeyDistances {
        assert!(bias.distances > 0, "a bias has distances: {s:?}");
        let origin = isize::try_from(bias.zero).expect("an index") - s.band.offset;
        KeyDistances { count: bias.distances, origin }
    }

    /// Splits `len` keys from `start` on by their bias: returns the number of keys clamped to the first distance, the
    /// number of keys with a distance of their own, and the index of the first such distance. The remaining keys are
    /// clamped to the last distance.
    fn split(&self, query: usize, start: usize, len: usize) -> (usize, usize, usize) {
        let first = start as isize - query as isize + self.origin;
        let before = first.min(0).unsigned_abs().min(len);
        let index = first.max(0).unsigned_abs().min(self.count);
        let own = (len - before).min(self.count - index);
        (before, own, index)
    }

    /// Adds the gradients of the visible scores of a tile of `keys` keys from `start` on to the gradients of their
    /// biases.
    pub fn add_tile(
        &self,
        queries: Range<usize>,
        visible: VisibleKeys,
        [start, keys]: [usize; 2],
        row_len: usize,
        dscores: &[f32],
        dbias: &mut [f64],
    ) {
        for ((row, query), dscores) in queries.enumerate().zip(dscores.chunks_exact(row_len)) {
            let (first, end) = visible.inside(row, start, keys);
            self.add_row(query, start + first, &dscores[first..end], dbias);
        }
    }

    fn add_row(&self, query: usize, start: usize, dscores: &[f32], dbias: &mut [f64]) {
        let (before, own, index) = self.split(query, start, dscores.len());
        let (first, rest) = dscores.split_at(before);
        let (middle, last) = rest.split_at(own);
        dbias[0] += sum_in_f64(first);
        dbias[self.count - 1] += sum_in_f64(last);
        for (dbias, dscore) in dbias[index..][..own].iter_mut().zip(middle) {
            *dbias += f64::from(*dscore);
        }
    }
}

fn sum_in_f64(x: &[f32]) -> f64 {
    x.iter().map(|x| f64::from(*x)).sum()
}

impl<'a> Scoring<'a> {
    pub fn new(s: &AttentionShape, bias: Option<DistanceBias<'a>>) -> Scoring<'a> {
        let bias = bias.map(|bias| {
            let values: &[f32] = bias.values.typed();
            check_heads(s, bias.distances, values.len());
            Biases { values, distances: KeyDistances::new(s, &bias) }
        });
        Scoring { scale: s.scale, soft_cap: s.soft_cap, bias }
    }

    /// Returns true if scores are plain scaled dot products.
    pub fn is_plain(&self) -> bool {
        self.soft_cap.is_none() && self.bias.is_none()
    }

    /// Returns the scale that the softmax applies to scores: 1 if the scoring pass has applied the scale.
    pub fn scale_left(&self) -> f32 {
        if self.is_plain() { self.scale } else { 1.0 }
    }

    /// Turns dot products of queries with the keys from `start` on into scores, if a pass is needed.
    pub fn apply(
        &self,
        head: usize,
        queries: Range<usize>,
        start: usize,
        row_len: usize,
        scores: &mut [f32],
    ) {
        if self.is_plain() {
            return;
        }
        match self.soft_cap {
            None => scale_by(scores, self.scale),
            Some(cap) => soft_cap(scores, self.scale, cap),
        }
        self.add_bias(head, queries, start, row_len, scores);
    }

    /// Applies like [`apply`](Self::apply), and writes the derivatives of scores with respect to dot products.
    pub fn apply_with_slopes(
        &self,
        head: usize,
        queries: Range<usize>,
        start: usize,
        row_len: usize,
        scores: &mut [f32],
        slopes: &mut [f32],
    ) {
        match self.soft_cap {
            None => {
                scale_by(scores, self.scale);
                slopes.fill(self.scale);
            }
            Some(cap) => soft_cap_with_slopes(scores, slopes, self.scale, cap),
        }
        self.add_bias(head, queries, start, row_len, scores);
    }

    fn add_bias(
        &self,
        head: usize,
        queries: Range<usize>,
        start: usize,
        row_len: usize,
        scores: &mut [f32],
    ) {
        let Some(Biases { values, distances }) = self.bias else { return };
        let values = &values[head * distances.count..][..distances.count];
        for (query, scores) in queries.zip(scores.chunks_exact_mut(row_len)) {
            let (before, own, index) = distances.split(query, start, row_len);
            let (first, rest) = scores.split_at_mut(before);
            let (middle, last) = rest.split_at_mut(own);
            add_one(first, values[0]);
            add_each(middle, &values[index..][..own]);
            add_one(last, values[distances.count - 1]);
        }
    }
}

dispatch! {
    fn scale_by<const FMA: bool>(x: &mut [f32], factor: f32) {
        for x in x {
            *x *= factor;
        }
    }
}

dispatch! {
    fn soft_cap<const FMA: bool>(scores: &mut [f32], scale: f32, cap: f32) {
        let inner = scale / cap;
        for score in scores {
            *score = cap * tanh::<FMA>(*score * inner);
        }
    }
}

dispatch! {
    fn soft_cap_with_slopes<const FMA: bool>(
        scores: &mut [f32],
        slopes: &mut [f32],
        scale: f32,
        cap: f32,
    ) {
        let inner = scale / cap;
        for (score, slope) in scores.iter_mut().zip(slopes) {
            let t = tanh::<FMA>(*score * inner);
            *score = cap * t;
            *slope = scale * (1.0 - t * t);
        }
    }
}

dispatch! {
    fn add_one<const FMA: bool>(x: &mut [f32], y: f32) {
        for x in x {
            *x += y;
        }
    }
}

dispatch! {
    fn add_each<const FMA: bool>(x: &mut [f32], y: &[f32]) {
        for (x, y) in x.iter_mut().zip(y) {
            *x += y;
        }
    }
}

//! Attention by the textbook, in f64.

use meshwright_backend::{AttentionShape, DType};

use super::case::{Bias, Case, Initial, NAMES, Results};
use super::dropout::factor;
use crate::Target;
use crate::compare::assert_near;
use crate::values::wide;

/// Results of the formula.
pub(super) struct Expected {
    results: Results<f64>,
    /// The order of the terms of each result's sums, which may cancel: errors are relative to it if all values are
    /// smaller.
    orders: [f64; 7],
}

/// Returns the root of the largest sum of squares of the terms of an element: the order of a sum of terms with random
/// signs.
fn order(squares: Vec<f64>) -> f64 {
    squares.into_iter().fold(0.1, f64::max).sqrt()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], factor: f64, x: &[f64]) {
    to.iter_mut().zip(x).for_each(|(to, x)| *to += factor * x);
}

/// A score, and its derivative by the scaled product.
struct Score {
    value: f64,
    slope: f64,
}

impl Case {
    /// Computes all results; gradients from the output `given`, which may be rounded.
    pub(super) fn reference(&self, given: &[f32]) -> Expected {
        let s = &self.s;
        let [q, k, v, dout] = [&self.q, &self.k, &self.v, &self.dout].map(|x| wide(x));
        // Gradients that are not added to begin at zero.
        let Initial { out, lse, dq, dk, dv, dbias, dsinks } = self.initial(0.0);
        let [mut out, mut lse, mut dq, mut dk, mut dv, mut dbias, mut dsinks] =
            [out, lse, dq, dk, dv, dbias, dsinks].map(|x| wide(&x));
        let given = wide(given);
        let mut dk_squares = vec![0.0; dk.len()];
        let mut dbias_squares = vec![0.0; dbias.len()];
        for [b, h, i] in rows(s) {
            let row = (b * s.queries.pitch + i) * s.heads + h;
            let query = row * s.head_dim..(row + 1) * s.head_dim;
            let output = row * s.value_dim..(row + 1) * s.value_dim;
            let key_row = |j: usize| (b * s.keys.pitch + j) * s.kv_heads + s.kv_head(h);
            let key = |j: usize| key_row(j) * s.head_dim..(key_row(j) + 1) * s.head_dim;
            let value = |j: usize| key_row(j) * s.value_dim..(key_row(j) + 1) * s.value_dim;
            let seen: Vec<usize> = (0..s.keys.len).filter(|j| self.sees(b, i, *j)).collect();
            let score = |j: &usize| self.score(dot(&q[query.clone()], &k[key(*j)]), [h, i, *j]);
            let scores: Vec<Score> = seen.iter().map(score).collect();
            let sink = self.sinks.as_ref().map_or(f64::NEG_INFINITY, |sinks| sinks[h].into());
            let max = scores.iter().map(|score| score.value).fold(sink, f64::max);
            let base = if max == f64::NEG_INFINITY { 0.0 } else { max };
            let exp = |score: f64| (score - base).exp();
            let total = exp(sink) + scores.iter().map(|score| exp(score.value)).sum::<f64>();
            lse[(b * s.heads + h) * s.queries.pitch + i] = base + total.ln();
            // A row without any score has no weights.
            let divisor = if total == 0.0 { 1.0 } else { total };
            let weights: Vec<f64> = scores.iter().map(|score| exp(score.value) / divisor).collect();
            let factor =
                |j: usize| s.dropout.as_ref().map_or(1.0, |dropout| factor(dropout, [b, h, i, j]));
            for (&j, weight) in seen.iter().zip(&weights) {
                add(&mut out[output.clone()], weight * factor(j), &v[value(j)]);
            }
            let dout = &dout[output.clone()];
            let delta = dot(dout, &given[output.clone()]);
            for ((&j, weight), score) in seen.iter().zip(&weights).zip(&scores) {
                let dscore = weight * (factor(j) * dot(dout, &v[value(j)]) - delta);
                let dproduct = dscore * score.slope * f64::from(s.scale);
                add(&mut dv[value(j)], weight * factor(j), dout);
                add(&mut dq[query.clone()], dproduct, &k[key(j)]);
                add(&mut dk[key(j)], dproduct, &q[query.clone()]);
                for (squares, q) in dk_squares[key(j)].iter_mut().zip(&q[query.clone()]) {
                    *squares += (dproduct * q).powi(2);
                }
                if let Some(bias) = &self.bias {
                    let at = h * bias.distances + self.distance(bias, i, j);
                    dbias[at] += dscore;
                    dbias_squares[at] += dscore * dscore;
                }
            }
            if self.sinks.is_some() {
                dsinks[h] -= exp(sink) / divisor * delta;
            }
        }
        // Gradients may cancel: over the only key of a query, over all pairs, which may share one bias, and over all
        // queries, which share a sink.
        let (dk_order, dbias_order) = (order(dk_squares).max(1.0), order(dbias_squares).max(1.0));
        Expected {
            results: [out, lse, dq, dk, dv, dbias, dsinks],
            orders: [0.1, 1.0, 1.0, dk_order, 1.0, dbias_order, 1.0],
        }
    }

    /// Returns true if a query sees a key.
    fn sees(&self, sample: usize, query: usize, key: usize) -> bool {
        let band = self.s.band;
        let distance = key as isize - (query as isize + band.offset);
        let in_band = band.before.is_none_or(|before| -distance <= before as isize)
            && band.after.is_none_or(|after| distance <= after as isize);
        let in_range = self.ranges.as_ref().is_none_or(|[first, end]| {
            let at = sample * self.s.queries.pitch + query;
            (first[at] as usize..end[at] as usize).contains(&key)
        });
        in_band && in_range
    }

    fn score(&self, product: f64, [head, query, key]: [usize; 3]) -> Score {
        let mut score = Score { value: product * f64::from(self.s.scale), slope: 1.0 };
        if let Some(cap) = self.s.soft_cap.map(f64::from) {
            let part = (score.value / cap).tanh();
            score = Score { value: cap * part, slope: 1.0 - part * part };
        }
        if let Some(bias) = &self.bias {
            let at = head * bias.distances + self.distance(bias, query, key);
            score.value += f64::from(bias.values[at]);
        }
        score
    }

    fn distance(&self, bias: &Bias, query: usize, key: usize) -> usize {
        let distance = key as isize - query as isize - self.s.band.offset + bias.zero as isize;
        distance.clamp(0, bias.distances as isize - 1) as usize
    }
}

/// Returns the rows `[batch, heads, queries]`.
fn rows(s: &AttentionShape) -> impl Iterator<Item = [usize; 3]> + use<> {
    let [batch, heads, queries] = [s.batch, s.heads, s.queries.len];
    (0..batch * heads * queries)
        .map(move |row| [row / queries / heads, row / queries % heads, row % queries])
}

/// Errors of each result, relative to its largest value: in f32 from summation; in bf16 also the rounding of
/// results (2^-8), weights (2^-9) and score gradients.
const F32: [f64; 7] = [1e-6, 1e-6, 1e-6, 2e-6, 1e-6, 1e-6, 1e-6];
const BF16: [f64; 7] = [6e-3, 2e-6, 1e-2, 1e-2, 6e-3, 1e-2, 1e-2];

impl Expected {
    /// Checks results of operands of `dtype`. Elements between samples must be as they were.
    #[track_caller]
    pub fn check(&self, target: &Target, what: &str, dtype: DType, got: &Results) {
        for (i, name) in NAMES.iter().enumerate() {
            let tolerance = match (dtype, *name) {
                (DType::F32, _) => F32[i],
                (_, "lse") => target.log_tolerance().max(BF16[i]),
                _ => BF16[i],
            };
            let what = format!("{name} of {what}, {dtype}");
            assert_near(&what, &got[i], &self.results[i], tolerance, self.orders[i]);
        }
    }
}

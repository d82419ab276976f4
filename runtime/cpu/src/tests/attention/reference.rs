//! Attention by the textbook, in f64.

use super::super::wide;
use super::case::{Bias, Case, Gradients};
use meshwright_backend::AttentionShape;

/// Results in f64, in the order of [`NAMES`](super::NAMES).
pub struct Expected {
    pub results: [Vec<f64>; 7],
    /// The orders of `dk` and of `dbias`, to which rounding errors are relative if terms cancel: the terms of few keys
    /// may, and the terms of all keys of a query if they share one bias.
    pub dk_order: f64,
    pub dbias_order: f64,
}

/// Returns the root of the largest sum of squares of the terms of an element: the order of a sum of terms with random
/// signs.
fn order(squares: Vec<f64>) -> f64 {
    squares.into_iter().fold(0.0, f64::max).sqrt()
}

impl Case {
    /// Returns true if a query sees a key.
    pub fn sees(&self, sample: usize, query: usize, key: usize) -> bool {
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

    /// Computes all results.
    pub fn reference(&self) -> Expected {
        let s = &self.s;
        let AttentionShape { batch, queries, keys, heads, head_dim, value_dim, .. } = *s;
        let [q, k, v, dout] = [&self.q, &self.k, &self.v, &self.dout].map(|x| wide(x));
        let (out, lse) = self.unwritten::<f32>();
        let (mut out, mut lse) = (wide(&out), wide(&lse));
        let Gradients { dq, dk, dv, dbias, dsinks } = self.initial::<f32>();
        let [mut dq, mut dk, mut dv, mut dbias, mut dsinks] =
            [dq, dk, dv, dbias, dsinks].map(|x| {
                // Elements that are not written begin at zero.
                wide(&x).into_iter().map(|x| if x.is_nan() { 0.0 } else { x }).collect::<Vec<_>>()
            });
        let (mut dk_squares, mut dbias_squares) = (vec![0.0; dk.len()], vec![0.0; dbias.len()]);
        for (b, h, i) in super::triples(batch, heads, queries.len) {
            let kv_head = (s.first_head + h) / s.group;
            let position = (b * queries.pitch + i) * heads + h;
            let key = |j: usize| (b * keys.pitch + j) * s.kv_heads + kv_head;
            let dot = |x: &[f64], at: usize, y: &[f64], to: usize, dim: usize| -> f64 {
                (0..dim).map(|d| x[at * dim + d] * y[to * dim + d]).sum()
            };
            let bias_at = |j: usize| {
                let Bias { distances, zero, .. } = self.bias.as_ref()?;
                let index = j as isize - i as isize - s.band.offset + *zero as isize;
                Some(h * distances + index.clamp(0, *distances as isize - 1) as usize)
            };
            let seen: Vec<usize> = (0..keys.len).filter(|&j| self.sees(b, i, j)).collect();
            // Scores, and their derivatives with respect to dot products.
            let scored = |j: &usize| {
                let x = f64::from(s.scale) * dot(&q, position, &k, key(*j), head_dim);
                let (x, slope) = match s.soft_cap.map(f64::from) {
                    None => (x, 1.0),
                    Some(cap) => (cap * (x / cap).tanh(), 1.0 - (x / cap).tanh().powi(2)),
                };
                let bias = bias_at(*j)
                    .map_or(0.0, |at| f64::from(self.bias.as_ref().expect("a bias").values[at]));
                (x + bias, f64::from(s.scale) * slope)
            };
            let (scores, slopes): (Vec<f64>, Vec<f64>) = seen.iter().map(scored).unzip();
            let sink = self.sinks.as_ref().map(|sinks| f64::from(sinks[h]));
            let all = || scores.iter().copied().chain(sink);
            let max = all().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = all().map(|s| (s - max).exp()).sum();
            let row_lse = if total == 0.0 { max } else { max + total.ln() };
            lse[(b * heads + h) * queries.pitch + i] = row_lse;
            let weights: Vec<f64> = scores.iter().map(|s| (s - row_lse).exp()).collect();

            let row = position * value_dim..(position + 1) * value_dim;
            out[row.clone()].fill(0.0);
            for (j, weight) in seen.iter().zip(&weights) {
                for d in 0..value_dim {
                    out[row.start + d] += weight * v[key(*j) * value_dim + d];
                }
            }
            let shift: f64 = row.clone().map(|at| dout[at] * out[at]).sum();
            if let Some(sink) = sink {
                dsinks[h] -= (sink - row_lse).exp() * shift;
            }
            for ((j, weight), slope) in seen.iter().zip(&weights).zip(&slopes) {
                let dweight = dot(&dout, position, &v, key(*j), value_dim);
                let dscore = weight * (dweight - shift);
                if let Some(at) = bias_at(*j) {
                    dbias[at] += dscore;
                    dbias_squares[at] += dscore * dscore;
                }
                for d in 0..value_dim {
                    dv[key(*j) * value_dim + d] += weight * dout[row.start + d];
                }
                for d in 0..head_dim {
                    let (at, to) = (position * head_dim + d, key(*j) * head_dim + d);
                    dq[at] += dscore * slope * k[to];
                    let term = dscore * slope * q[at];
                    dk[to] += term;
                    dk_squares[to] += term * term;
                }
            }
        }
        Expected {
            results: [out, lse, dq, dk, dv, dbias, dsinks],
            dk_order: order(dk_squares),
            dbias_order: order(dbias_squares),
        }
    }
}

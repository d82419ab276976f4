//! The textbook formula, in f64.

use meshwright::backend::AttentionShape;

use super::case::{Bias, Case, Expected, lse_len};

/// Returns the rows `[batch, heads, queries]`.
fn rows(s: &AttentionShape) -> impl Iterator<Item = [usize; 3]> + use<> {
    let [batch, heads, queries] = [s.batch, s.heads, s.queries.len];
    (0..batch * heads * queries)
        .map(move |row| [row / queries / heads, row / queries % heads, row % queries])
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], factor: f64, x: &[f64]) {
    to.iter_mut().zip(x).for_each(|(to, x)| *to += factor * x);
}

impl Case {
    /// Returns the results of the formula.
    pub fn reference(&self) -> Expected {
        let s = &self.s;
        let [q, k, v, dout] = [&self.q, &self.k, &self.v, &self.dout].map(|x| widen(x));
        let mut out = vec![f64::NAN; dout.len()];
        let mut lse = vec![f64::NAN; lse_len(s)];
        let [mut dq, mut dk, mut dv, mut dbias] = self.before().map(|x| widen(&x));
        let mut dsinks = vec![0.0; self.sinks.as_ref().map_or(0, Vec::len)];
        let mut dk_squares = vec![0.0; dk.len()];
        // What is not added to is written, except between samples.
        if !self.accumulate {
            for (grad, layout, width) in [
                (&mut dq, s.queries, s.heads * s.head_dim),
                (&mut dk, s.keys, s.kv_heads * s.head_dim),
                (&mut dv, s.keys, s.kv_heads * s.value_dim),
            ] {
                for (row, chunk) in grad.chunks_exact_mut(width.max(1)).enumerate() {
                    if row % layout.pitch < layout.len {
                        chunk.fill(0.0);
                    }
                }
            }
            dbias.fill(0.0);
        }
        for [b, h, i] in rows(s) {
            let row = (b * s.queries.pitch + i) * s.heads + h;
            let query = row * s.head_dim..(row + 1) * s.head_dim;
            let output = row * s.value_dim..(row + 1) * s.value_dim;
            let key_row = |j: usize| (b * s.keys.pitch + j) * s.kv_heads + s.kv_head(h);
            let key = |j: usize| key_row(j) * s.head_dim..(key_row(j) + 1) * s.head_dim;
            let value = |j: usize| key_row(j) * s.value_dim..(key_row(j) + 1) * s.value_dim;
            let seen: Vec<usize> = self.seen(b, i).collect();
            let scores: Vec<Score> = seen
                .iter()
                .map(|&j| self.score(dot(&q[query.clone()], &k[key(j)]), [h, i, j]))
                .collect();
            let sink = self.sinks.as_ref().map_or(f64::NEG_INFINITY, |sinks| f64::from(sinks[h]));
            let max = scores.iter().map(|score| score.value).fold(sink, f64::max);
            let base = if max == f64::NEG_INFINITY { 0.0 } else { max };
            let exp = |score: f64| (score - base).exp();
            let total: f64 = exp(sink) + scores.iter().map(|score| exp(score.value)).sum::<f64>();
            lse[(b * s.heads + h) * s.queries.pitch + i] = base + total.ln();
            out[output.clone()].fill(0.0);
            let weights: Vec<f64> = scores.iter().map(|score| exp(score.value) / total).collect();
            for (&j, weight) in seen.iter().zip(&weights) {
                add(&mut out[output.clone()], *weight, &v[value(j)]);
            }
            let dout = &dout[output.clone()];
            let delta = dot(dout, &out[output.clone()]);
            for ((&j, weight), score) in seen.iter().zip(&weights).zip(&scores) {
                let dscore = weight * (dot(dout, &v[value(j)]) - delta);
                let dproduct = dscore * score.slope * f64::from(s.scale);
                add(&mut dv[value(j)], *weight, dout);
                add(&mut dq[query.clone()], dproduct, &k[key(j)]);
                add(&mut dk[key(j)], dproduct, &q[query.clone()]);
                for (squares, q) in dk_squares[key(j)].iter_mut().zip(&q[query.clone()]) {
                    *squares += (dproduct * q).powi(2);
                }
                if let Some(bias) = &self.bias {
                    dbias[h * bias.distances + self.distance(bias, i, j)] += dscore;
                }
            }
            if self.sinks.is_some() && total > 0.0 {
                dsinks[h] -= exp(sink) / total * delta;
            }
        }
        // A gradient of keys is a sum of few terms where few queries see a key.
        let dk_order = dk_squares.iter().fold(1.0, |max: f64, x| max.max(x.sqrt()));
        Expected {
            results: [out, lse, dq, dk, dv, dbias, dsinks],
            orders: [1.0, 1.0, 1.0, dk_order, 1.0, 1.0, 1.0],
        }
    }

    /// Returns the keys that a query sees.
    fn seen(&self, sample: usize, query: usize) -> impl Iterator<Item = usize> {
        let of_band = self.s.band.visible(query, self.s.keys.len);
        let row = sample * self.s.queries.pitch + query;
        let of_range = self
            .ranges
            .as_ref()
            .map_or(0..usize::MAX, |[first, end]| first[row] as usize..end[row] as usize);
        of_band.filter(move |key| of_range.contains(key))
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

/// A score, and its derivative by the scaled product.
struct Score {
    value: f64,
    slope: f64,
}

fn widen(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().copied().map(f64::from).collect()
}

//! A mixture of experts in f64: every expert computes every token, and the weights of those not chosen are 0.

use meshwright::nn::layers::{RouterOptions, RouterScore};

/// Sizes of the mixture.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub tokens: usize,
    pub hidden: usize,
    pub ffn: usize,
    pub experts: usize,
    pub chosen: usize,
}

/// Parameters by name: the router's weight, and the weights of the experts' two layers.
#[derive(Debug, Clone)]
pub struct Params {
    pub router: Vec<f64>,
    pub up: Vec<f64>,
    pub down: Vec<f64>,
}

/// The mixture.
#[derive(Debug, Clone, Copy)]
pub struct Dense {
    pub sizes: Sizes,
    pub options: RouterOptions,
    /// Weights of both auxiliary losses.
    pub balance: f64,
    pub z: f64,
}

impl Dense {
    /// Returns the mean square of the outputs, and the mean of the auxiliary losses per token.
    pub fn loss(&self, params: &Params, x: &[f64]) -> [f64; 2] {
        let Sizes { tokens, hidden, experts, chosen, .. } = self.sizes;
        let rows: Vec<&[f64]> = x.chunks(hidden).collect();
        let logits: Vec<Vec<f64>> =
            rows.iter().map(|row| product(row, &params.router, experts)).collect();
        let choices: Vec<Vec<usize>> =
            logits.iter().map(|logits| largest(logits, chosen)).collect();
        let squares =
            rows.iter().zip(&logits).zip(&choices).flat_map(|((row, logits), choices)| {
                let weights = self.weights(logits, choices);
                let mut sum = vec![0.0; hidden];
                for (expert, weight) in choices.iter().zip(weights) {
                    let out = self.expert(params, *expert, row);
                    sum.iter_mut().zip(out).for_each(|(sum, out)| *sum += weight * out);
                }
                sum.into_iter().map(|y| y * y).collect::<Vec<_>>()
            });
        let loss = squares.sum::<f64>() / (tokens * hidden) as f64;
        let fraction = |expert: usize| {
            let count = choices.iter().flatten().filter(|choice| **choice == expert).count();
            count as f64 / (tokens * chosen) as f64
        };
        let auxiliary = logits.iter().map(|logits| {
            let p = self.probabilities(logits);
            let balance: f64 = p.iter().enumerate().map(|(e, p)| fraction(e) * p).sum();
            let lse = logits.iter().map(|l| l.exp()).sum::<f64>().ln();
            self.balance * experts as f64 * balance + self.z * lse * lse
        });
        [loss, auxiliary.sum::<f64>() / tokens as f64]
    }

    fn scores(&self, logits: &[f64]) -> Vec<f64> {
        match self.options.score {
            RouterScore::Softmax => {
                let sum: f64 = logits.iter().map(|l| l.exp()).sum();
                logits.iter().map(|l| l.exp() / sum).collect()
            }
            RouterScore::Sigmoid => logits.iter().map(|l| 1.0 / (1.0 + (-l).exp())).collect(),
        }
    }

    fn probabilities(&self, logits: &[f64]) -> Vec<f64> {
        let scores = self.scores(logits);
        let sum: f64 = scores.iter().sum();
        scores.into_iter().map(|score| score / sum).collect()
    }

    fn weights(&self, logits: &[f64], choices: &[usize]) -> Vec<f64> {
        let scores = self.scores(logits);
        let sum: f64 = choices.iter().map(|choice| scores[*choice]).sum();
        let sum = if self.options.normalize { sum } else { 1.0 };
        let scale = f64::from(self.options.scale);
        choices.iter().map(|choice| scale * scores[*choice] / sum).collect()
    }

    fn expert(&self, params: &Params, expert: usize, row: &[f64]) -> Vec<f64> {
        let Sizes { hidden, ffn, .. } = self.sizes;
        let len = hidden * ffn;
        let [up, down] =
            [&params.up, &params.down].map(|weight| &weight[expert * len..(expert + 1) * len]);
        let inside: Vec<f64> = product(row, up, ffn).into_iter().map(f64::tanh).collect();
        product(&inside, down, hidden)
    }
}

/// Multiplies a row by a matrix with `cols` columns.
fn product(row: &[f64], matrix: &[f64], cols: usize) -> Vec<f64> {
    let term = |col: usize| row.iter().enumerate().map(move |(i, x)| x * matrix[i * cols + col]);
    (0..cols).map(|col| term(col).sum()).collect()
}

/// Returns the indices of the `k` largest numbers, the largest first.
fn largest(numbers: &[f64], k: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by(|a, b| numbers[*b].total_cmp(&numbers[*a]));
    order.truncate(k);
    order
}

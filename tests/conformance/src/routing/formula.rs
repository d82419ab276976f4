//! Weights and auxiliary loss of one token in f64, as their documentation defines them.

use meshwright_backend::{ExpertGroups, MAX_TOP_K};

/// Tokens of each case.
pub const TOKENS: usize = 5;

/// Experts and choices of each token.
pub const SIZES: [(usize, usize); 12] = [
    (1, 1),
    (2, 1),
    (2, 2),
    (8, 3),
    (33, 4),
    (5, 5),
    (16, 6),
    (63, 7),
    (64, 8),
    (64, 2),
    (64, 10),
    (65, MAX_TOP_K),
];

/// Returns logits of order one, and some so large that exponentials overflow or underflow, from values in [-1, 1).
pub fn magnitudes(x: &[f32]) -> [Vec<f32>; 4] {
    let map = |f: fn(f32) -> f32| x.iter().copied().map(f).collect();
    [map(|x| 4.0 * x), map(|x| 200.0 * x), map(|x| x + 200.0), map(|x| x - 200.0)]
}

/// Returns different experts for each token, not those with the largest logits.
pub fn choices(tokens: usize, experts: usize, k: usize) -> Vec<u32> {
    let of_token = |token: usize| (0..k).map(move |i| ((3 * token + i) % experts) as u32);
    (0..tokens).flat_map(of_token).collect()
}

fn scores(is_sigmoid: bool, logits: &[f64]) -> Vec<f64> {
    if is_sigmoid {
        return logits.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect();
    }
    let lse = log_sum_exp(logits);
    logits.iter().map(|x| (x - lse).exp()).collect()
}

fn log_sum_exp(x: &[f64]) -> f64 {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    max + x.iter().map(|x| (x - max).exp()).sum::<f64>().ln()
}

/// Returns the scores that experts are chosen by, without the experts outside of the best groups.
pub fn choice_scores(
    is_sigmoid: bool,
    groups: Option<ExpertGroups>,
    logits: &[f64],
    bias: &[f64],
) -> Vec<f64> {
    let mut scores = scores(is_sigmoid, logits);
    scores.iter_mut().zip(bias).for_each(|(score, bias)| *score += bias);
    let Some(ExpertGroups { count, best, top }) = groups else { return scores };
    let size = scores.len() / count;
    let sum_of_best = |group: &[f64]| {
        let mut group = group.to_vec();
        group.sort_by(|a, b| b.total_cmp(a));
        group[..top].iter().sum::<f64>()
    };
    let sums: Vec<f64> = scores.chunks_exact(size).map(sum_of_best).collect();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|a, b| sums[*b].total_cmp(&sums[*a]).then(a.cmp(b)));
    for group in &order[best..] {
        scores[group * size..][..size].fill(f64::NEG_INFINITY);
    }
    scores
}

/// Returns the weights of choices for a scale of 1, divided by their sum if there is a `divisor`, which is added to the
/// sum of sigmoids.
pub fn weights(
    is_sigmoid: bool,
    divisor: Option<f64>,
    logits: &[f64],
    choices: &[u32],
) -> Vec<f64> {
    let scores = scores(is_sigmoid, logits);
    let chosen: Vec<f64> = choices.iter().map(|choice| scores[*choice as usize]).collect();
    let added = if is_sigmoid { divisor } else { Some(0.0) };
    let sum = divisor.map_or(1.0, |_| chosen.iter().sum::<f64>() + added.unwrap_or_default());
    chosen.into_iter().map(|score| score / sum).collect()
}

/// Returns the auxiliary loss of a token.
pub fn auxiliary_loss(is_sigmoid: bool, logits: &[f64], factors: &[f64], z: f64) -> f64 {
    let scores = scores(is_sigmoid, logits);
    let weighted: f64 = scores.iter().zip(factors).map(|(score, factor)| score * factor).sum();
    z * log_sum_exp(logits).powi(2) + weighted / scores.iter().sum::<f64>()
}

/// Returns the gradient of a function by central differences.
pub fn gradient(x: &[f64], f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    const STEP: f64 = 1e-5;
    let moved = |i: usize, by: f64| {
        let mut x = x.to_vec();
        x[i] += by;
        f(&x)
    };
    (0..x.len()).map(|i| (moved(i, STEP) - moved(i, -STEP)) / (2.0 * STEP)).collect()
}

//! FLOPs of a training step, by the usual convention and as a fraction of what the machine can do.

use std::time::Instant;

use crate::backend::{Category, DType, Gemm};
use crate::nn::Built;
use crate::tensor::Rank;

/// Model FLOPs of training on one token: `6 N + 12 L H Q T` with `N` parameters besides the token embedding, `L`
/// layers of `H` heads of `Q` elements, and sequences of `T` (Chowdhery et al., "PaLM", 2022, appendix B).
pub fn model_flops_per_token<M>(built: &Built<M>, embedding: &str, tied: bool, seq: usize) -> f64 {
    let looked_up: usize = built
        .params()
        .iter()
        .filter(|param| !tied && param.path() == embedding)
        .map(|param| param.global_len())
        .sum();
    let attention: usize = built.attentions.iter().map(|(heads, head_dim)| heads * head_dim).sum();
    6.0 * (built.global_len() - looked_up) as f64 + 12.0 * (attention * seq) as f64
}

/// FLOP/s that this rank reaches on a large matrix product, while the others measure too.
pub fn measure_peak(rank: &Rank) -> f64 {
    const SIZE: usize = 768;
    let buffer = || rank.meter().zeros(DType::F32, SIZE * SIZE, Category::Workspace);
    let (a, b, mut c) = (buffer(), buffer(), buffer());
    let product =
        Gemm { m: SIZE, n: SIZE, k: SIZE, trans_a: false, trans_b: false, accumulate: false };
    let best = (0..4)
        .map(|_| {
            let start = Instant::now();
            rank.backend().gemm(&product, a.view(), b.view(), c.view_mut());
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min);
    2.0 * (SIZE * SIZE * SIZE) as f64 / best
}

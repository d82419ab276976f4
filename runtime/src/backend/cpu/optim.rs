//! Optimiser steps: every operand is read and written once.

use super::math::fma;
use super::simd::dispatch;
use super::workers::{Rows, Workers};
use crate::backend::AdamStep;

pub(super) fn adamw(
    workers: &Workers,
    step: &AdamStep,
    p: &mut [f32],
    g: &[f32],
    m: &mut [f32],
    v: &mut [f32],
) {
    assert_eq!([g.len(), m.len(), v.len()], [p.len(); 3], "adamw: operands of one size");
    workers.rows(p.len(), 4, (Rows(p, 1), Rows(m, 1), Rows(v, 1)), |range, (p, m, v)| {
        adamw_range(step, p.0, &g[range], m.0, v.0);
    });
}

dispatch! {
    fn adamw_range<const FMA: bool>(
        step: &AdamStep, p: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32],
    ) {
        let decay = 1.0 - step.lr * step.weight_decay;
        let rate = step.lr / step.bias_correction1;
        let inv_root = 1.0 / step.bias_correction2.sqrt();
        let (rest1, rest2) = (1.0 - step.beta1, 1.0 - step.beta2);
        let len = p.len();
        let (g, m, v) = (&g[..len], &mut m[..len], &mut v[..len]);
        for i in 0..len {
            let grad = g[i] * step.grad_scale;
            m[i] = fma::<FMA>(step.beta1, m[i], rest1 * grad);
            v[i] = fma::<FMA>(step.beta2, v[i], rest2 * grad * grad);
            let denominator = fma::<FMA>(v[i].sqrt(), inv_root, step.eps);
            p[i] = decay * p[i] - rate * (m[i] / denominator);
        }
    }
}

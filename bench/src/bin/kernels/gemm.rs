//! Matmuls. Weight gradients are f32 for all operand dtypes.

use meshwright::backend::Gemm;

use crate::report::{Report, Work};
use crate::{FFN, HIDDEN, LAYERS, Number, TOKENS, VOCAB, filled, view, view_mut};

fn matmul(m: usize, n: usize, k: usize, layout: &str) -> Gemm {
    let (trans_a, trans_b) = (layout.starts_with('t'), layout.ends_with('t'));
    Gemm { m, n, k, trans_a, trans_b, accumulate: trans_a }
}

pub fn rows<T: Number>(report: &mut Report) {
    for (name, calls, inputs, outputs) in [
        ("projections", 4 * LAYERS, HIDDEN, HIDDEN),
        ("gate and up", 2 * LAYERS, HIDDEN, FFN),
        ("down", LAYERS, FFN, HIDDEN),
        ("head", 1, HIDDEN, VOCAB),
    ] {
        let forward = matmul(TOKENS, outputs, inputs, "nt");
        let input_gradient = matmul(TOKENS, inputs, outputs, "nn");
        let weight_gradient = matmul(outputs, inputs, TOKENS, "tn");
        row::<T, T>(report, &format!("gemm {name}, forward"), calls, &forward);
        row::<T, T>(report, &format!("gemm {name}, input gradient"), calls, &input_gradient);
        row::<T, f32>(report, &format!("gemm {name}, weight gradient"), calls, &weight_gradient);
    }
}

fn row<T: Number, C: Number>(report: &mut Report, name: &str, calls: usize, g: &Gemm) {
    let (a, b) = (filled::<T>(g.m * g.k, 0.5), filled::<T>(g.k * g.n, 0.25));
    let mut c = filled::<C>(g.m * g.n, 0.0);
    report.row(name, calls, Work::Flops(2 * g.m * g.n * g.k), |cpu| {
        cpu.gemm(g, view(&a), view(&b), view_mut(&mut c));
    });
}

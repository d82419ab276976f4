//! Tests that graphs compute the same as the CPU kernels.

use std::collections::HashMap;

use super::interpreter::run;
use crate::backend::cpu::CpuBackend;
use crate::backend::cuda::DenseAttention;
use crate::backend::cuda::cudnn::{AttentionPass, AttentionSizes, GraphOperand, GraphScalar};
use crate::backend::{
    AttentionArgs, AttentionBackwardArgs, AttentionOps, AttentionShape, Band, View, ViewMut,
};

const SCALE: f32 = 0.3;

fn scalar(scalar: GraphScalar) -> f32 {
    match scalar {
        GraphScalar::Scale => SCALE,
        GraphScalar::Masked => f32::NEG_INFINITY,
        GraphScalar::One => 1.0,
    }
}

/// Returns pseudo-random numbers between -1 and 1.
fn numbers(seed: usize, len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919 + seed * 104729) as f32 * 0.61803).sin()).collect()
}

fn assert_close(what: &str, got: &[f32], expected: &[f32]) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        // Written so that NaN fails.
        let close = (got - expected).abs() <= 2e-5 * (1.0 + expected.abs());
        assert!(close, "{what}[{i}]: {got} instead of {expected}");
    }
}

#[test]
fn graphs_compute_attention_and_its_gradients() {
    let cpu = CpuBackend::new(1).expect("threads");
    for band in [Band::ALL, Band::CAUSAL] {
        for (batch, seq, heads, kv_heads, head_dim) in
            [(1, 1, 1, 1, 8), (2, 7, 3, 3, 8), (2, 6, 4, 2, 16), (1, 5, 6, 1, 8)]
        {
            let shape = AttentionShape::new(batch, seq, [heads, kv_heads, head_dim], band);
            let shape = AttentionShape { scale: SCALE, ..shape };
            let dense = DenseAttention::of(&shape).expect("dense self-attention");
            let (wide, narrow) =
                (batch * seq * heads * head_dim, batch * seq * kv_heads * head_dim);
            let rows = batch * heads * seq;
            let [q, k, v, dout] =
                [(1, wide), (2, narrow), (3, narrow), (4, wide)].map(|(s, n)| numbers(s, n));
            let (mut out, mut lse) = (vec![0.0f32; wide], vec![0.0f32; rows]);
            let [mut dq, mut dk, mut dv] = [wide, narrow, narrow].map(|n| vec![0.0f32; n]);
            let [vq, vk, vv] = [&q, &k, &v].map(|x| View::from(&x[..]));
            cpu.attention(
                &shape,
                AttentionArgs {
                    q: vq,
                    k: vk,
                    v: vv,
                    ranges: None,
                    bias: None,
                    sinks: None,
                    out: ViewMut::from(&mut out[..]),
                    lse: ViewMut::from(&mut lse[..]),
                },
            );
            cpu.attention_backward(
                &shape,
                AttentionBackwardArgs {
                    q: View::from(&q[..]),
                    k: View::from(&k[..]),
                    v: View::from(&v[..]),
                    ranges: None,
                    bias: None,
                    sinks: None,
                    out: View::from(&out[..]),
                    accumulate: false,
                    dbias: None,
                    dsinks: None,
                    lse: View::from(&lse[..]),
                    dout: View::from(&dout[..]),
                    dq: ViewMut::from(&mut dq[..]),
                    dk: ViewMut::from(&mut dk[..]),
                    dv: ViewMut::from(&mut dv[..]),
                },
            );

            let nothing = |len| vec![f32::NAN; len];
            let mut memory = HashMap::from([
                (GraphOperand::Q, q),
                (GraphOperand::K, k),
                (GraphOperand::V, v),
                (GraphOperand::Out, nothing(wide)),
                (GraphOperand::Lse, nothing(rows)),
            ]);
            run(&AttentionPass::Forward.graph(AttentionSizes::from(&dense)), &mut memory, scalar);
            assert_close("out", &memory[&GraphOperand::Out], &out);
            assert_close("lse", &memory[&GraphOperand::Lse], &lse);

            for deterministic in [false, true] {
                let mut memory = memory.clone();
                memory.extend([
                    (GraphOperand::DOut, dout.clone()),
                    (GraphOperand::DQ, nothing(wide)),
                    (GraphOperand::DK, nothing(narrow)),
                    (GraphOperand::DV, nothing(narrow)),
                    (GraphOperand::RowSum, nothing(rows)),
                    (GraphOperand::DQSum, nothing(wide)),
                ]);
                let graph =
                    AttentionPass::Backward { deterministic }.graph(AttentionSizes::from(&dense));
                run(&graph, &mut memory, scalar);
                for (what, expected) in
                    [(GraphOperand::DQ, &dq), (GraphOperand::DK, &dk), (GraphOperand::DV, &dv)]
                {
                    assert_close(&format!("{what:?} of {shape:?}"), &memory[&what], expected);
                }
            }
        }
    }
}

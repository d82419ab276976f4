//! Tests that graphs compute the same as the CPU kernels.

use std::collections::HashMap;

use super::interpreter::run;
use crate::backend::cpu::CpuBackend;
use crate::backend::cuda::cudnn::{Operand, Pass, Scalar, Sizes};
use crate::backend::{AttentionShape, Backend, View, ViewMut};

const SCALE: f32 = 0.3;

fn scalar(scalar: Scalar) -> f32 {
    match scalar {
        Scalar::Scale => SCALE,
        Scalar::Masked => f32::NEG_INFINITY,
        Scalar::One => 1.0,
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
    for causal in [false, true] {
        for (batch, seq, heads, kv_heads, head_dim) in
            [(1, 1, 1, 1, 8), (2, 7, 3, 3, 8), (2, 6, 4, 2, 16), (1, 5, 6, 1, 8)]
        {
            let shape =
                AttentionShape { batch, seq, heads, kv_heads, head_dim, scale: SCALE, causal };
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
                vq,
                vk,
                vv,
                ViewMut::from(&mut out[..]),
                ViewMut::from(&mut lse[..]),
            );
            cpu.attention_backward(
                &shape,
                View::from(&q[..]),
                View::from(&k[..]),
                View::from(&v[..]),
                View::from(&out[..]),
                View::from(&lse[..]),
                View::from(&dout[..]),
                ViewMut::from(&mut dq[..]),
                ViewMut::from(&mut dk[..]),
                ViewMut::from(&mut dv[..]),
            );

            let nothing = |len| vec![f32::NAN; len];
            let mut memory = HashMap::from([
                (Operand::Q, q),
                (Operand::K, k),
                (Operand::V, v),
                (Operand::Out, nothing(wide)),
                (Operand::Lse, nothing(rows)),
            ]);
            run(&Pass::Forward.graph(Sizes::from(&shape)), &mut memory, scalar);
            assert_close("out", &memory[&Operand::Out], &out);
            assert_close("lse", &memory[&Operand::Lse], &lse);

            for deterministic in [false, true] {
                let mut memory = memory.clone();
                memory.extend([
                    (Operand::DOut, dout.clone()),
                    (Operand::DQ, nothing(wide)),
                    (Operand::DK, nothing(narrow)),
                    (Operand::DV, nothing(narrow)),
                    (Operand::RowSum, nothing(rows)),
                    (Operand::DQSum, nothing(wide)),
                ]);
                let graph = Pass::Backward { deterministic }.graph(Sizes::from(&shape));
                run(&graph, &mut memory, scalar);
                for (what, expected) in [(Operand::DQ, &dq), (Operand::DK, &dk), (Operand::DV, &dv)]
                {
                    assert_close(&format!("{what:?} of {shape:?}"), &memory[&what], expected);
                }
            }
        }
    }
}

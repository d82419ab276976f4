//! Tests that graphs compute the same as the CPU kernels.

use std::collections::HashMap;

use super::interpreter::run;
use crate::FusedShape;
use crate::cudnn::{AttentionPass, CudnnAttentionSizes, GraphOperand, GraphScalar};
use meshwright_backend::ops::attention::{AttentionArgs, AttentionBackwardArgs};
use meshwright_backend::{AttentionOps, AttentionShape, Band, SequenceLayout, View, ViewMut};
use meshwright_cpu::CpuBackend;

const SCALE: f32 = 0.3;

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

/// Sizes, masks and layouts that the library takes.
fn shapes() -> Vec<AttentionShape> {
    let mut shapes = Vec::new();
    for band in [Band::ALL, Band::CAUSAL] {
        for (batch, seq, heads, kv_heads, head_dim) in
            [(1, 1, 1, 1, 8), (2, 7, 3, 3, 8), (2, 6, 4, 2, 16), (1, 5, 6, 1, 8)]
        {
            shapes.push(AttentionShape::new(batch, seq, [heads, kv_heads, head_dim], band));
        }
    }
    let square = AttentionShape::new(2, 7, [4, 2, 8], Band::CAUSAL);
    let other_keys =
        |len, pitch, band| AttentionShape { keys: SequenceLayout { len, pitch }, band, ..square };
    let band = |offset, before, after| Band { offset, before, after };
    shapes.extend([
        AttentionShape { band: band(0, Some(2), Some(0)), ..square },
        AttentionShape { band: band(0, Some(0), Some(0)), ..square },
        AttentionShape { band: band(0, Some(2), Some(3)), ..square },
        AttentionShape { band: band(0, Some(1), None), ..square },
        AttentionShape { band: band(0, None, Some(2)), ..square },
        AttentionShape { value_dim: 16, ..square },
        other_keys(12, 12, Band::ALL),
        other_keys(4, 4, Band::ALL),
        other_keys(4, 4, Band::CAUSAL),
        // Queries at the end of the keys, with gaps between samples.
        other_keys(12, 15, band(5, None, Some(0))),
        other_keys(12, 15, band(5, Some(3), Some(0))),
    ]);
    shapes.into_iter().map(|shape| AttentionShape { scale: SCALE, ..shape }).collect()
}

/// The value of elements that a graph must not write.
const UNWRITTEN: f32 = 7.0;

#[test]
fn graphs_compute_attention_and_its_gradients() {
    let cpu = CpuBackend::new(1).expect("threads");
    for shape in shapes() {
        let AttentionShape { batch, queries, keys, heads, kv_heads, head_dim, value_dim, .. } =
            shape;
        let sizes =
            CudnnAttentionSizes::from(&FusedShape::from_attention(&shape).expect("a fused shape"));
        let of_queries = |dim| batch * queries.len * heads * dim;
        let of_keys = |dim| batch * keys.pitch * kv_heads * dim;
        let (q_len, out_len) = (of_queries(head_dim), of_queries(value_dim));
        let (k_len, v_len) = (of_keys(head_dim), of_keys(value_dim));
        let rows = batch * heads * queries.len;
        let [q, k, v, dout] =
            [(1, q_len), (2, k_len), (3, v_len), (4, out_len)].map(|(s, n)| numbers(s, n));
        let unwritten = |len| vec![UNWRITTEN; len];
        let (mut out, mut lse) = (unwritten(out_len), unwritten(rows));
        let [mut dq, mut dk, mut dv] = [q_len, k_len, v_len].map(unwritten);
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

        let bounds = |scalar: GraphScalar| match scalar {
            GraphScalar::Scale => SCALE,
            GraphScalar::Masked => f32::NEG_INFINITY,
            GraphScalar::One => 1.0,
            GraphScalar::RightBound => sizes.mask.right.expect("a bound") as f32,
            GraphScalar::LeftBound => sizes.mask.left.expect("a bound") as f32,
        };
        let mut memory = HashMap::from([
            (GraphOperand::Q, q),
            (GraphOperand::K, k),
            (GraphOperand::V, v),
            (GraphOperand::Out, unwritten(out_len)),
            (GraphOperand::Lse, unwritten(rows)),
        ]);
        run(&AttentionPass::Forward.graph(sizes), &mut memory, bounds);
        assert_close(&format!("out of {shape:?}"), &memory[&GraphOperand::Out], &out);
        assert_close(&format!("lse of {shape:?}"), &memory[&GraphOperand::Lse], &lse);

        for deterministic in [false, true] {
            let mut memory = memory.clone();
            memory.extend([
                (GraphOperand::DOut, dout.clone()),
                (GraphOperand::DQ, unwritten(q_len)),
                (GraphOperand::DK, unwritten(k_len)),
                (GraphOperand::DV, unwritten(v_len)),
                (GraphOperand::RowSum, unwritten(rows)),
                (GraphOperand::DQSum, unwritten(q_len)),
            ]);
            run(&AttentionPass::Backward { deterministic }.graph(sizes), &mut memory, bounds);
            for (what, expected) in
                [(GraphOperand::DQ, &dq), (GraphOperand::DK, &dk), (GraphOperand::DV, &dv)]
            {
                assert_close(&format!("{what:?} of {shape:?}"), &memory[&what], expected);
            }
        }
    }
}

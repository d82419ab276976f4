//! Attention over parts of the keys, merged.

use meshwright::backend::ops::attention::{
    AttentionArgs, AttentionBackwardArgs, MergeAttentionArgs,
};
use meshwright::backend::{AttentionShape, Band, DType, SequenceLayout};

use super::case::{Case, shape};
use super::{BF16, F32};
use crate::support::{Side, device};

/// Computes `[out, lse, dq, dk, dv]` over parts of the keys that end at `ends`.
fn in_parts(case: &Case, ends: &[usize], side: &Side) -> [Vec<f32>; 5] {
    let (s, backend) = (&case.s, side.backend());
    let [q, k, v, dout] =
        [&case.q, &case.k, &case.v, &case.dout].map(|x| side.floats(case.dtype, x));
    let starts = [0].into_iter().chain(ends.iter().copied());
    let parts: Vec<(usize, AttentionShape)> = starts
        .zip(ends)
        .map(|(start, end)| {
            let keys = SequenceLayout { len: end - start, pitch: s.keys.pitch };
            let band = Band { offset: s.band.offset - start as isize, ..s.band };
            (start, AttentionShape { keys, band, ..*s })
        })
        .collect();
    // The rows of a part begin at its first key, and end with the rows of the last sample.
    let of_part = |start: usize, len: usize, dim: usize| {
        let width = s.kv_heads * dim;
        start * width..((s.batch - 1) * s.keys.pitch + start + len) * width
    };
    let lse_len = s.batch * s.heads * s.queries.len;
    let [mut sum, mut sum_lse] = [case.dout.len(), lse_len].map(|len| side.blank(DType::F32, len));
    for (i, (start, part)) in parts.iter().enumerate() {
        let len = part.keys.len;
        let [mut out, mut lse] = [case.dout.len(), lse_len].map(|len| side.blank(DType::F32, len));
        let (into, into_lse) = if i == 0 { (&mut sum, &mut sum_lse) } else { (&mut out, &mut lse) };
        backend.attention(
            part,
            AttentionArgs {
                q: q.view(),
                k: k.view().slice(of_part(*start, len, s.head_dim)),
                v: v.view().slice(of_part(*start, len, s.value_dim)),
                ranges: None,
                bias: None,
                sinks: None,
                out: into.view_mut(),
                lse: into_lse.view_mut(),
            },
        );
        if i > 0 {
            backend.merge_attention(
                part,
                MergeAttentionArgs {
                    out: out.view(),
                    lse: lse.view(),
                    sum: sum.view_mut(),
                    sum_lse: sum_lse.view_mut(),
                },
            );
        }
    }
    let zeros = |len: usize| side.put(&vec![0.0f32; len]);
    let [mut dq, mut dk, mut dv] = [&case.q, &case.k, &case.v].map(|x| zeros(x.len()));
    for (start, part) in &parts {
        let of_keys = of_part(*start, part.keys.len, s.head_dim);
        let of_values = of_part(*start, part.keys.len, s.value_dim);
        backend.attention_backward(
            part,
            AttentionBackwardArgs {
                q: q.view(),
                k: k.view().slice(of_keys.clone()),
                v: v.view().slice(of_values.clone()),
                ranges: None,
                bias: None,
                sinks: None,
                out: sum.view(),
                lse: sum_lse.view(),
                dout: dout.view(),
                accumulate: true,
                dq: dq.view_mut(),
                dk: dk.view_mut().into_slice(of_keys),
                dv: dv.view_mut().into_slice(of_values),
                dbias: None,
                dsinks: None,
            },
        );
    }
    [sum, sum_lse, dq, dk, dv].map(|operand| operand.numbers())
}

/// Parts in every place: a query sees all, some or no keys of a part.
#[test]
fn merged_parts_are_the_whole() {
    for (dtype, most) in [(DType::F32, F32), (DType::Bf16, BF16)] {
        for (causal, ends) in [(true, vec![40, 41, 90]), (false, vec![33, 90])] {
            let case = Case::new(shape(2, 90, [2, 1, 16], causal), dtype);
            let got = in_parts(&case, &ends, &device(4, 0));
            for (error, most) in case.reference().errors(&got).iter().zip(most) {
                assert!(*error <= most, "{dtype}, causal {causal}: {error:e}");
            }
        }
    }
}

/// Log-sum-exps whose exponentials overflow, and rows without keys on either side or on both.
#[test]
fn merging_is_safe_at_the_extremes() {
    let side = device(2, 0);
    let none = f32::NEG_INFINITY;
    let [so_far, other] = [[none, none, 1.0, 3e4, -3e4, 2.0], [none, 5.0, none, 1.0, 1.0, 2.0]];
    let s = AttentionShape { value_dim: 2, ..shape(1, 6, [1, 1, 2], false) };
    let put = |values: &[f32]| side.put(values);
    let (out, lse) = (put(&[7.0; 12]), put(&other));
    let (mut sum, mut sum_lse) = (put(&[3.0; 12]), put(&so_far));
    side.backend().merge_attention(
        &s,
        MergeAttentionArgs {
            out: out.view(),
            lse: lse.view(),
            sum: sum.view_mut(),
            sum_lse: sum_lse.view_mut(),
        },
    );
    let expected = [3.0, 7.0, 3.0, 3.0, 7.0, 5.0].map(|x| [x; 2]).concat();
    assert_eq!(sum.numbers(), expected);
    assert_eq!(sum_lse.numbers(), [none, 5.0, 1.0, 3e4, 1.0, 2.0 + 2f32.ln()]);
}

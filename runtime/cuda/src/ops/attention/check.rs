//! Checks of operands against the shape.

use meshwright_backend::ops::attention::{
    AttentionArgs, AttentionBackwardArgs, MergeAttentionArgs,
};
use meshwright_backend::{AttentionShape, DType, DistanceBias, KeyRanges, View};

/// Maximum number of positions, heads and distances: sums of any three of them fit 32 bits.
const MOST: usize = 1 << 29;

pub(super) fn forward(s: &AttentionShape, args: &AttentionArgs) {
    let AttentionArgs { q, k, v, ranges, bias, sinks, out, lse } = args;
    shape(s);
    let dtype = q.dtype();
    check_inputs(s, [q, k, v], dtype);
    check_floats(s, "out", out.as_view(), query_elements(s, s.value_dim), &[dtype, DType::F32]);
    check_floats(s, "lse", lse.as_view(), numbers(s), &[DType::F32]);
    check_extras(s, ranges, bias, sinks);
}

pub(super) fn backward(s: &AttentionShape, args: &AttentionBackwardArgs) {
    let AttentionBackwardArgs { q, k, v, ranges, bias, sinks, out, lse, dout, .. } = args;
    let AttentionBackwardArgs { dq, dk, dv, dbias, dsinks, .. } = args;
    shape(s);
    let dtype = q.dtype();
    let either = [dtype, DType::F32];
    check_inputs(s, [q, k, v], dtype);
    check_floats(s, "out", *out, query_elements(s, s.value_dim), &either);
    check_floats(s, "lse", *lse, numbers(s), &[DType::F32]);
    check_floats(s, "dout", *dout, query_elements(s, s.value_dim), &[dtype]);
    check_floats(s, "dq", dq.as_view(), query_elements(s, s.head_dim), &either);
    check_floats(s, "dk", dk.as_view(), key_elements(s, s.head_dim), &either);
    check_floats(s, "dv", dv.as_view(), key_elements(s, s.value_dim), &[dk.as_view().dtype()]);
    check_extras(s, ranges, bias, sinks);
    if let Some(dbias) = dbias {
        let bias = bias.expect("a gradient of the bias needs the bias");
        check_floats(s, "dbias", dbias.as_view(), s.heads * bias.distances, &[DType::F32]);
    }
    if let Some(dsinks) = dsinks {
        assert!(sinks.is_some(), "a gradient of sinks needs the sinks");
        check_floats(s, "dsinks", dsinks.as_view(), s.heads, &[DType::F32]);
    }
}

pub(super) fn merge(s: &AttentionShape, args: &MergeAttentionArgs) {
    let MergeAttentionArgs { out, lse, sum, sum_lse } = args;
    for (name, view) in [("out", *out), ("sum", sum.as_view())] {
        check_floats(s, name, view, query_elements(s, s.value_dim), &[DType::F32]);
    }
    for (name, view) in [("lse", *lse), ("sum_lse", sum_lse.as_view())] {
        check_floats(s, name, view, numbers(s), &[DType::F32]);
    }
}

fn shape(s: &AttentionShape) {
    let &AttentionShape { heads, kv_heads, group, first_head, scale, soft_cap, .. } = s;
    assert!(scale > 0.0, "the order of scores is that of scaled scores: {s:?}");
    assert!(soft_cap.is_none_or(|cap| cap > 0.0), "a soft cap is positive: {s:?}");
    assert!(group > 0, "a key/value head has query heads: {s:?}");
    assert!(
        heads == 0 || s.kv_head(heads - 1) < kv_heads,
        "query heads have key/value heads: {s:?}"
    );
    for layout in [s.queries, s.keys] {
        assert!(layout.len <= layout.pitch, "samples do not overlap: {s:?}");
        assert!(layout.pitch < MOST, "positions are counted in 32 bits: {s:?}");
    }
    if let Some(dropout) = &s.dropout {
        let last =
            [(dropout.rows, s.batch), (dropout.queries, s.queries.len), (dropout.keys, s.keys.len)]
                .map(|(positions, len)| positions.position(len));
        let are_few = last.iter().all(|last| *last < MOST) && dropout.first_head < MOST;
        assert!(are_few, "positions of dropout are counted in 32 bits: {s:?}");
    }
    let all_heads = (kv_heads + 1).checked_mul(group).and_then(|all| all.checked_add(first_head));
    assert!(all_heads.is_some_and(|all| all < MOST), "heads are counted in 32 bits: {s:?}");
}

fn check_inputs(s: &AttentionShape, [q, k, v]: [&View; 3], dtype: DType) {
    check_floats(s, "q", *q, query_elements(s, s.head_dim), &[dtype]);
    check_floats(s, "k", *k, key_elements(s, s.head_dim), &[dtype]);
    check_floats(s, "v", *v, key_elements(s, s.value_dim), &[dtype]);
}

fn check_extras(
    s: &AttentionShape,
    ranges: &Option<KeyRanges>,
    bias: &Option<DistanceBias>,
    sinks: &Option<View>,
) {
    if let Some(KeyRanges { first, end }) = ranges {
        for view in [first, end] {
            assert!(view.len() >= s.queries.span(s.batch), "key ranges of all queries: {s:?}");
            assert_eq!(view.dtype(), DType::U32, "key ranges are u32");
        }
    }
    if let Some(bias) = bias {
        assert!((1..MOST).contains(&bias.distances), "a bias has distances, counted in 32 bits");
        check_floats(s, "bias", bias.values, s.heads * bias.distances, &[DType::F32]);
    }
    if let Some(sinks) = sinks {
        check_floats(s, "sinks", *sinks, s.heads, &[DType::F32]);
    }
}

fn check_floats(s: &AttentionShape, name: &str, view: View, least: usize, dtypes: &[DType]) {
    let (len, dtype) = (view.len(), view.dtype());
    assert!(len >= least, "`{name}` of attention has {len} elements of {least}: {s:?}");
    assert!(dtypes.contains(&dtype), "`{name}` of attention is {dtype}, not one of {dtypes:?}");
}

/// Returns the elements from the first to the last of all queries, with rows of `dim` elements.
fn query_elements(s: &AttentionShape, dim: usize) -> usize {
    s.queries.span(s.batch) * s.heads * dim
}

fn key_elements(s: &AttentionShape, dim: usize) -> usize {
    s.keys.span(s.batch) * s.kv_heads * dim
}

/// Returns the elements from the first to the last of numbers `[batch, heads, queries.pitch]`.
fn numbers(s: &AttentionShape) -> usize {
    match s.batch * s.heads {
        0 => 0,
        rows => (rows - 1) * s.queries.pitch + s.queries.len,
    }
}

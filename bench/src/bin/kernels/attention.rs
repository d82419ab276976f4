//! Attention of several sequence lengths, masks and heads; the first shape is that of the model.

use meshwright::backend::ops::attention::{AttentionArgs, AttentionBackwardArgs};
use meshwright::backend::{
    AttentionShape, Band, GlobalPositions, KeyRanges, SequenceLayout, WeightDropout,
};

use crate::report::{Report, Work};
use crate::{LAYERS, Number, filled, view, view_mut};

pub fn rows<T: Number>(report: &mut Report) {
    for (batch, seq, heads, head_dim, calls) in
        [(4, 512, 8, 64, LAYERS), (1, 2048, 8, 64, 0), (1, 4096, 8, 64, 0), (1, 2048, 8, 128, 0)]
    {
        let s = AttentionShape::new(batch, seq, [heads, heads, head_dim], Band::CAUSAL);
        let name = format!("attention {batch} x {seq} x {heads} x {head_dim}");
        row::<T>(report, &name, calls, &s, None);
    }
    let causal = |seq: usize, heads: [usize; 3]| AttentionShape::new(1, seq, heads, Band::CAUSAL);
    let named = |report: &mut Report, name: &str, s: AttentionShape| {
        row::<T>(report, &format!("attention {name}"), 0, &s, None);
    };
    let long = causal(32768, [1, 1, 64]);
    let window = Band { before: Some(4095), ..Band::CAUSAL };
    named(report, "1 x 32768 x 1 x 64", long);
    named(report, "1 x 32768 x 1 x 64, window of 4096", AttentionShape { band: window, ..long });
    let packed = causal(8192, [2, 2, 64]);
    named(report, "1 x 8192 x 2 x 64", packed);
    let name = "attention 1 x 8192 x 2 x 64, documents of about 1024";
    row::<T>(report, name, 0, &packed, Some(documents(8192)));
    let wide = AttentionShape { value_dim: 128, ..causal(2048, [4, 4, 192]) };
    named(report, "1 x 2048 x 4 x 192, values of 128", wide);
    named(report, "1 x 2048 x 8 x 64, 2 key/value heads", causal(2048, [8, 2, 64]));
    named(report, "1 x 2048 x 8 x 64, 1 key/value head", causal(2048, [8, 1, 64]));
    let capped = AttentionShape { soft_cap: Some(50.0), ..causal(2048, [8, 8, 64]) };
    named(report, "1 x 2048 x 8 x 64, soft cap", capped);
    let at = GlobalPositions::consecutive(0);
    let dropout =
        WeightDropout { key: 1, rate: 0.1, rows: at, first_head: 0, queries: at, keys: at };
    let dropped = AttentionShape { dropout: Some(dropout), ..causal(2048, [8, 8, 64]) };
    named(report, "1 x 2048 x 8 x 64, dropout", dropped);
}

/// Key ranges of documents of 512 to 1535 positions: first key and end of each query.
fn documents(seq: usize) -> [Vec<u32>; 2] {
    let (mut first, mut end) = (Vec::new(), Vec::new());
    let mut start = 0;
    while start < seq {
        let len = (512 + 619 * (first.len() + 1) % 1024).min(seq - start);
        first.extend(std::iter::repeat_n(start as u32, len));
        end.extend(std::iter::repeat_n((start + len) as u32, len));
        start += len;
    }
    [first, end]
}

/// Measures forward and backward. FLOPs count the visible query-key pairs only.
fn row<T: Number>(
    report: &mut Report,
    name: &str,
    calls: usize,
    s: &AttentionShape,
    ranges: Option<[Vec<u32>; 2]>,
) {
    let operand = |layout: SequenceLayout, width: usize| -> Vec<T> {
        (0..layout.span(s.batch) * width).map(|i| T::of((i % 31) as f32 / 31.0)).collect()
    };
    let q = operand(s.queries, s.heads * s.head_dim);
    let k = operand(s.keys, s.kv_heads * s.head_dim);
    let v = operand(s.keys, s.kv_heads * s.value_dim);
    let dout = operand(s.queries, s.heads * s.value_dim);
    let [mut out, mut dq, mut dk, mut dv] =
        [&dout, &q, &k, &v].map(|operand| filled::<T>(operand.len(), 0.0));
    let mut lse = filled::<f32>(s.queries.span(s.batch * s.heads), 0.0);
    let (q, k, v, dout) = (view(&q), view(&k), view(&v), view(&dout));
    let ranges = ranges.as_ref();
    let key_ranges = ranges.map(|[first, end]| KeyRanges { first: view(first), end: view(end) });

    let seen = |query: usize| {
        let band = s.band.visible(query, s.keys.len);
        let [first, end] = ranges.map_or([0, s.keys.len], |[first, end]| {
            [first[query], end[query]].map(|key| key as usize)
        });
        band.end.min(end).saturating_sub(band.start.max(first))
    };
    let pairs = s.batch * s.heads * (0..s.queries.len).map(seen).sum::<usize>();
    let work = Work::Flops(pairs * (2 * s.head_dim + 2 * s.value_dim));
    report.row(&format!("{name}, forward"), calls, work, |cpu| {
        let (out, lse) = (view_mut(&mut out), view_mut(&mut lse));
        cpu.attention(
            s,
            AttentionArgs { q, k, v, ranges: key_ranges, bias: None, sinks: None, out, lse },
        );
    });
    let work = Work::Flops(pairs * (6 * s.head_dim + 4 * s.value_dim));
    report.row(&format!("{name}, backward"), calls, work, |cpu| {
        cpu.attention_backward(
            s,
            AttentionBackwardArgs {
                q,
                k,
                v,
                ranges: key_ranges,
                bias: None,
                sinks: None,
                out: view(&out),
                lse: view(&lse),
                dout,
                accumulate: false,
                dq: view_mut(&mut dq),
                dk: view_mut(&mut dk),
                dv: view_mut(&mut dv),
                dbias: None,
                dsinks: None,
            },
        );
    });
}

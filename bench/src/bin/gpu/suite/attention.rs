//! Attention, forward and backward.

use meshwright::backend::ops::attention::{AttentionArgs, AttentionBackwardArgs};
use meshwright::backend::{AttentionShape, Band, DType};

use super::report::{Report, Work};
use super::sizes::Sizes;

pub fn rows(report: &mut Report, sizes: &Sizes) {
    report.table("causal attention, bf16");
    let of = |model: &super::sizes::Model| {
        (model.batch, model.seq, model.heads, model.kv_heads, model.head_dim())
    };
    let (batch, seq, heads, kv_heads, head_dim) = of(&sizes.llama);
    for (batch, seq, heads, kv_heads, head_dim) in [
        (batch, seq, heads, kv_heads, head_dim),
        (batch, seq, heads / 2, heads / 2, 2 * head_dim),
        of(&sizes.gpt2),
    ] {
        let name = format!("{batch} x {seq}, {heads}/{kv_heads} heads of {head_dim}");
        let shape = AttentionShape::new(batch, seq, [heads, kv_heads, head_dim], Band::CAUSAL);
        let (queries, keys) = (batch * seq * heads * head_dim, batch * seq * kv_heads * head_dim);
        let [q, dout] = [(); 2].map(|()| report.random(DType::Bf16, queries));
        let [k, v] = [(); 2].map(|()| report.random(DType::Bf16, keys));
        let [mut out, mut dq] = [(); 2].map(|()| report.alloc(DType::Bf16, queries));
        let [mut dk, mut dv] = [(); 2].map(|()| report.alloc(DType::Bf16, keys));
        let mut lse = report.alloc(DType::F32, batch * heads * seq);
        // Two matmuls forward, five backward, of half the scores.
        let one = (batch * heads * seq * seq * head_dim) as f64;
        report.row(&format!("{name}: forward"), Work::Flops(2.0 * one), |backend| {
            let [q, k, v] = [q.view(), k.view(), v.view()];
            backend.attention(
                &shape,
                AttentionArgs {
                    q,
                    k,
                    v,
                    ranges: None,
                    bias: None,
                    sinks: None,
                    out: out.view_mut(),
                    lse: lse.view_mut(),
                },
            );
        });
        report.row(&format!("{name}: backward"), Work::Flops(5.0 * one), |backend| {
            let [q, k, v, out, lse, dout] = [&q, &k, &v, &out, &lse, &dout].map(|x| x.view());
            let [dq, dk, dv] = [&mut dq, &mut dk, &mut dv].map(|x| x.view_mut());
            backend.attention_backward(
                &shape,
                AttentionBackwardArgs {
                    q,
                    k,
                    v,
                    ranges: None,
                    bias: None,
                    sinks: None,
                    out,
                    lse,
                    dout,
                    accumulate: false,
                    dq,
                    dk,
                    dv,
                    dbias: None,
                    dsinks: None,
                },
            );
        });
    }
}

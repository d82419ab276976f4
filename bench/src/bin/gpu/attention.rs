//! Attention, forward and backward.

use meshwright::backend::{AttentionShape, DType};

use super::report::{Report, Work};
use super::{BATCH, HEAD_DIM, HEADS, KV_HEADS, SEQ};

pub fn rows(report: &mut Report) {
    report.table("causal attention, bf16");
    let llama = (BATCH, SEQ, HEADS, KV_HEADS, HEAD_DIM);
    for (name, (batch, seq, heads, kv_heads, head_dim)) in [
        ("4 x 4096, 32/8 heads of 64", llama),
        ("4 x 4096, 16/16 heads of 128", (4, 4096, 16, 16, 128)),
        ("32 x 1024, 12/12 heads of 64", (32, 1024, 12, 12, 64)),
    ] {
        let scale = (head_dim as f32).powf(-0.5);
        let shape = AttentionShape { batch, seq, heads, kv_heads, head_dim, scale, causal: true };
        let (queries, keys) = (batch * seq * heads * head_dim, batch * seq * kv_heads * head_dim);
        let [q, dout] = [(); 2].map(|()| report.random(DType::Bf16, queries));
        let [k, v] = [(); 2].map(|()| report.random(DType::Bf16, keys));
        let [mut out, mut dq] = [(); 2].map(|()| report.room(DType::Bf16, queries));
        let [mut dk, mut dv] = [(); 2].map(|()| report.room(DType::Bf16, keys));
        let mut lse = report.room(DType::F32, batch * heads * seq);
        // Two products forward, five backward, of half the scores.
        let product = (batch * heads * seq * seq * head_dim) as f64;
        let work = |products: f64| Work::Flops { count: products * product, wide: false };
        report.row(&format!("{name}: forward"), work(2.0), |backend| {
            let [q, k, v] = [q.view(), k.view(), v.view()];
            backend.attention(&shape, q, k, v, out.view_mut(), lse.view_mut());
        });
        report.row(&format!("{name}: backward"), work(5.0), |backend| {
            let [q, k, v, out, lse, dout] = [&q, &k, &v, &out, &lse, &dout].map(|x| x.view());
            let [dq, dk, dv] = [&mut dq, &mut dk, &mut dv].map(|x| x.view_mut());
            backend.attention_backward(&shape, q, k, v, out, lse, dout, dq, dk, dv);
        });
    }
}

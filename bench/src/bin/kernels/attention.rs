//! Attention of several sequence lengths; the first shape is that of the model.

use meshwright::backend::{AttentionArgs, AttentionBackwardArgs, AttentionShape};

use crate::report::{Report, Work};
use crate::{LAYERS, Number, filled, view, view_mut};

pub fn rows<T: Number>(report: &mut Report) {
    for (batch, seq, heads, head_dim, calls) in
        [(4, 512, 8, 64, LAYERS), (1, 2048, 8, 64, 0), (1, 4096, 8, 64, 0), (1, 2048, 8, 128, 0)]
    {
        let scale = (head_dim as f32).powf(-0.5);
        let s =
            AttentionShape { batch, seq, heads, kv_heads: heads, head_dim, scale, causal: true };
        let len = batch * seq * heads * head_dim;
        let x: Vec<T> = (0..len).map(|i| T::of((i % 31) as f32 / 31.0)).collect();
        let (mut out, mut lse) = (filled::<T>(len, 0.0), filled::<f32>(batch * heads * seq, 0.0));
        // The lower triangle including the diagonal.
        let flops = 2 * batch * heads * head_dim * seq * (seq + 1);
        let name = format!("attention {batch} x {seq} x {heads} x {head_dim}");
        let x = view(&x);
        report.row(&format!("{name}, forward"), calls, Work::Flops(flops), |cpu| {
            cpu.attention(
                &s,
                AttentionArgs {
                    q: x,
                    k: x,
                    v: x,
                    out: view_mut(&mut out),
                    lse: view_mut(&mut lse),
                },
            );
        });
        let [mut dq, mut dk, mut dv] = [(); 3].map(|()| filled::<T>(len, 0.0));
        report.row(&format!("{name}, backward"), calls, Work::Flops(flops * 5 / 2), |cpu| {
            let (out, lse) = (view(&out), view(&lse));
            let (dq, dk, dv) = (view_mut(&mut dq), view_mut(&mut dk), view_mut(&mut dv));
            cpu.attention_backward(
                &s,
                AttentionBackwardArgs { q: x, k: x, v: x, out, lse, dout: x, dq, dk, dv },
            );
        });
    }
}

use half::bf16;

use super::{Kernel, Results, assert_rounds, input, unwritten, view, view_mut};
use crate::backend::cpu::float::Float;
use crate::backend::{AttentionArgs, AttentionBackwardArgs, AttentionShape, Backend, Band};

impl Kernel for AttentionShape {
    fn run<T: Float>(&self, cpu: &dyn Backend) -> Results<T> {
        let rows = self.batch * self.queries.len * self.head_dim;
        let (q_len, kv_len) = (rows * self.heads, rows * self.kv_heads);
        let (q, dout) = (input::<T>(q_len, 1, 3.0), input::<T>(q_len, 4, 1.0));
        let (k, v) = (input::<T>(kv_len, 2, 1.0), input::<T>(kv_len, 3, 1.0));
        let mut out = unwritten::<T>(q_len);
        let mut lse = unwritten::<f32>(self.batch * self.queries.len * self.heads);
        let [mut dq, mut dk, mut dv] = [q_len, kv_len, kv_len].map(unwritten::<T>);
        let (q, k, v) = (view(&q), view(&k), view(&v));
        cpu.attention(
            self,
            AttentionArgs {
                q,
                k,
                v,
                ranges: None,
                bias: None,
                sinks: None,
                out: view_mut(&mut out),
                lse: view_mut(&mut lse),
            },
        );
        // Backward starts from the same output for every type.
        let given: Vec<T> =
            out.iter().map(|x| T::narrow(bf16::from_f32(x.widen()).to_f32())).collect();
        let (out_in, lse_in) = (view(&given), view(&lse));
        let (dq_out, dk_out, dv_out) = (view_mut(&mut dq), view_mut(&mut dk), view_mut(&mut dv));
        let dout = view(&dout);
        cpu.attention_backward(
            self,
            AttentionBackwardArgs {
                q,
                k,
                v,
                ranges: None,
                bias: None,
                sinks: None,
                out: out_in,
                accumulate: false,
                dbias: None,
                dsinks: None,
                lse: lse_in,
                dout,
                dq: dq_out,
                dk: dk_out,
                dv: dv_out,
            },
        );
        Results {
            rounded: vec![("out", out), ("dq", dq), ("dk", dk), ("dv", dv)],
            wide: vec![("lse", lse)],
        }
    }
}

#[test]
fn attention() {
    for causal in [true, false] {
        for (batch, seq, heads, kv_heads, head_dim) in [
            (2, 7, 2, 1, 8),
            (1, 1, 1, 1, 2),
            (1, 64, 2, 2, 64),
            (2, 65, 4, 2, 18),
            (1, 515, 2, 1, 16),
            (1, 640, 1, 1, 128),
        ] {
            let scale = 1.3 / (head_dim as f32).sqrt();
            let band = if causal { Band::CAUSAL } else { Band::ALL };
            let sizes = [heads, kv_heads, head_dim];
            let s = AttentionShape { scale, ..AttentionShape::new(batch, seq, sizes, band) };
            // Weights and gradients of scores are rounded too, before they go into a product.
            assert_rounds(&format!("{s:?}"), &s, 4e-3);
        }
    }
}

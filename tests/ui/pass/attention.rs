//! Attention in functions that are generic in dims, in the axis of the heads, and in the mask.

use meshwright::layout::Axis;
use meshwright::nn::{AttentionMask, Bidirectional, Causal, MaskBetween};
use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Heads, KvHeads, HeadDim, ValueDim }

/// Self-attention with any mask, and values of any width.
fn masked<B: Dim, S: Local, H: Local, D: Local, V: Local, M>(
    core: &Attention<H, H, D, M, V>,
    x: &Tensor<(B, S, H, D)>,
    values: &Tensor<(B, S, H, V)>,
) -> Tensor<(B, S, H, V)>
where
    M: AttentionMask + MaskBetween<S, S>,
{
    core.forward(&(x.clone(), x.clone(), values.clone()))
}

/// Whole keys, and queries that are split over any axis.
fn shared<B: Dim, S: Local, H: Local, K: Local, D: Local, A: Axis>(
    core: &Attention<H, K, D>,
    q: Tensor<(B, S, Split<H, A>, D)>,
    kv: &Tensor<(B, S, K, D)>,
) -> Tensor<(B, S, Split<H, A>, D)> {
    core.forward(&(q, kv.clone(), kv.clone()))
}

/// An attention as a layer of any operands.
fn run<X, L: Layer<X>>(layer: &L, x: &X) -> L::Out {
    layer.forward(x)
}

#[model]
struct Attentions {
    causal: Attention<Heads, Heads, HeadDim, Causal, ValueDim>,
    bidirectional: Attention<Heads, Heads, HeadDim, Bidirectional, ValueDim>,
    shared: Attention<Heads, KvHeads, HeadDim>,
    alibi: Alibi<Heads>,
}

#[test]
fn generic_functions_attend() {
    let sizes = Sizes::new().with(Heads, 4).with(KvHeads, 1).with(HeadDim, 2).with(ValueDim, 3);
    super::on_mesh::<Attentions>("tp=2", &sizes, |rank, built| {
        let model = &built.model;
        let x = Tensor::<(Batch, Seq, Heads, HeadDim)>::from_fn(rank, &[1, 3, 4, 2], |_| 1.0);
        let values = Tensor::<(Batch, Seq, Heads, ValueDim)>::from_fn(rank, &[1, 3, 4, 3], |at| {
            at[1] as f32
        });
        // The mean of positions 0 to 2 at the last position, and everywhere without the mask.
        let causal = masked(&model.causal, &x, &values).to_local_vec();
        assert!((causal[2 * 12] - 1.0).abs() < 1e-6 && causal[0] == 0.0, "{causal:?}");
        let all = masked(&model.bidirectional, &x, &values).to_local_vec();
        assert!(all.iter().all(|mean| (mean - 1.0).abs() < 1e-6), "{all:?}");

        let q = x.slice(Heads, Tp);
        let kv = Tensor::<(Batch, Seq, KvHeads, HeadDim)>::from_fn(rank, &[1, 3, 1, 2], |_| 0.5);
        let ones = shared(&model.shared, q.clone(), &kv).to_local_vec();
        assert!(ones.iter().all(|x| (x - 0.5).abs() < 1e-6), "{ones:?}");
        let biased = run(&model.shared, &(q, kv.clone(), kv, &model.alibi)).to_local_vec();
        assert!(biased.iter().all(|x| (x - 0.5).abs() < 1e-6), "{biased:?}");
    });
}

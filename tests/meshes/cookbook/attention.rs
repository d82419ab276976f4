//! Attention written by hand. `Attention` is faster, and holds no scores.

use meshwright::prelude::*;

use super::compare;

dims! { Batch @ data, Seq, Keys, Hidden, Heads, HeadDim, KeyDim }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;
type Values = Tensor<(Batch, Seq, Split<Heads, Tp>, HeadDim)>;

fn sizes() -> Sizes {
    let mut sizes = Sizes::new().with(Hidden, 8).with(Heads, 4).with(HeadDim, 2).with(KeyDim, 2);
    sizes.init_std = 0.5;
    sizes
}

fn stream(rank: &Rank) -> Stream {
    let x: Tensor<(Batch, Seq, Hidden)> = Tensor::normal(rank, &[4, 6, 8], "x");
    x.slice(Seq, Tp)
}

// ANCHOR: by_hand
/// Causal attention with a mask that is never stored, and a residual of the first layer's values (Zhou et al., 2024).
#[model]
struct ByHand {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    mix: Param<(Heads,)>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, HeadDim), Hidden>,
}

#[forward]
impl ByHand {
    fn forward(&self, (x, first): &(Stream, Values)) -> Stream {
        let v = self.v.forward(x) + first * self.mix.tensor();
        let (k, v) = (self.k.forward(x).rename(Seq, Keys), v.rename(Seq, Keys));
        let scores = self.q.forward(x).dot(&k, HeadDim, (Batch, Heads)) * 0.7;
        let weights = scores.masked(&Mask::causal(Seq, Keys), f32::NEG_INFINITY).softmax();
        let mixed = weights.dot(&v, Keys, (Batch, Heads));
        self.o.forward(&mixed.permute((Batch, Seq, Heads, HeadDim)))
    }
}
// ANCHOR_END: by_hand

#[test]
fn attention_by_hand() {
    compare(&sizes(), |model: &ByHand, rank| {
        let x = stream(rank);
        let first = model.v.forward(&x);
        Loss::mean_of(&model.forward(&(x, first)).square())
    });
}

// ANCHOR: multi_query
/// Keys and values of one head, which all heads read.
#[model]
struct MultiQuery {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    k: Linear<Hidden, HeadDim>,
    v: Linear<Hidden, HeadDim>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, HeadDim), Hidden>,
}

#[forward]
impl MultiQuery {
    fn forward(&self, x: &Stream) -> Stream {
        let whole = x.gather(Seq);
        let k = self.k.forward(&whole).rename(Seq, Keys);
        let v = self.v.forward(&whole).rename(Seq, Keys);
        let weights = self.q.forward(x).dot(&k, HeadDim, (Batch,)).softmax();
        self.o.forward(&weights.dot(&v, Keys, (Batch,)))
    }
}
// ANCHOR_END: multi_query

#[test]
fn multi_query() {
    compare(&sizes(), |model: &MultiQuery, rank| {
        Loss::mean_of(&model.forward(&stream(rank)).square())
    });
}

// ANCHOR: linear
/// Linear attention: keys and values are contracted first, so its cost is linear in the sequence (Katharopoulos et al.,
/// 2020).
#[model]
struct LinearAttention {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, KeyDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (Heads, KeyDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, HeadDim), Hidden>,
}

#[forward]
impl LinearAttention {
    fn forward(&self, x: &Stream) -> Stream {
        let (q, k) = (self.q.forward(x).softplus(), self.k.forward(x).softplus());
        let state = k.dot(&self.v.forward(x), Seq, (Batch, Heads));
        let total = q.dot(&k.sum(Seq), KeyDim, (Batch, Heads)).permute((Batch, Seq, Heads));
        let mixed = q.dot(&state, KeyDim, (Batch, Heads)).permute((Batch, Seq, Heads, HeadDim));
        self.o.forward(&(mixed / total))
    }
}
// ANCHOR_END: linear

#[test]
fn linear_attention() {
    compare(&sizes(), |model: &LinearAttention, rank| {
        Loss::mean_of(&model.forward(&stream(rank)).square())
    });
}

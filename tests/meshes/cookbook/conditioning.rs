//! Layers whose scale and shift follow from a condition, a gate, or a parameter per head.

use meshwright::prelude::*;

use super::compare;

dims! { Batch @ data, Seq, Hidden, Cond, Ffn, Heads, HeadDim, One }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

fn sizes() -> Sizes {
    let sizes = Sizes::new().with(Hidden, 8).with(Cond, 6).with(Ffn, 16).with(One, 1);
    let mut sizes = sizes.with(Heads, 4).with(HeadDim, 2);
    sizes.init_std = 0.3;
    sizes
}

fn stream(rank: &Rank) -> Stream {
    let x: Tensor<(Batch, Seq, Hidden)> = Tensor::normal(rank, &[4, 6, 8], "x");
    x.slice(Seq, Tp)
}

// ANCHOR: ada_ln
/// Adaptive layer norm: a condition for each sample scales, shifts and gates the whole sequence (Peebles and Xie,
/// 2022).
#[model]
struct AdaptiveNorm {
    norm: LayerNorm<Hidden>,
    scale: Linear<Cond, Hidden>,
    shift: Linear<Cond, Hidden>,
    gate: Linear<Cond, Hidden>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl AdaptiveNorm {
    fn forward(&self, (x, cond): &(Stream, Tensor<(Batch, Cond)>)) -> Stream {
        let [scale, shift, gate] =
            [&self.scale, &self.shift, &self.gate].map(|layer| layer.forward(cond));
        let y = self.norm.forward(x) * (1.0 + scale) + shift;
        x + self.down.forward(&self.up.forward(&y).gelu()) * gate
    }
}
// ANCHOR_END: ada_ln

#[test]
fn adaptive_norm() {
    compare(&sizes(), |model: &AdaptiveNorm, rank| {
        let cond = Tensor::normal(rank, &[4, 6], "cond");
        Loss::mean_of(&model.forward(&(stream(rank), cond)).square())
    });
}

// ANCHOR: film
/// Feature-wise modulation of a hidden layer that is split over tp (Perez et al., 2018).
#[model]
struct Film {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "col")]
    gamma: Linear<Cond, Ffn>,
    #[sharded(tp = "col")]
    beta: Linear<Cond, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Film {
    fn forward(&self, (x, cond): &(Stream, Tensor<(Batch, Cond)>)) -> Stream {
        let inner = self.up.forward(x) * self.gamma.forward(cond) + self.beta.forward(cond);
        self.down.forward(&inner.relu())
    }
}
// ANCHOR_END: film

#[test]
fn film() {
    compare(&sizes(), |model: &Film, rank| {
        let cond = Tensor::normal(rank, &[4, 6], "cond");
        Loss::mean_of(&model.forward(&(stream(rank), cond)).square())
    });
}

// ANCHOR: gate
/// One gate for each token.
#[model]
struct TokenGate {
    gate: Linear<Hidden, One>,
    layer: Linear<Hidden, Hidden>,
}

#[forward]
impl TokenGate {
    fn forward(&self, x: &Stream) -> Stream {
        let gate = self.gate.forward(x).select(One, 0).sigmoid();
        x + self.layer.forward(x) * gate
    }
}
// ANCHOR_END: gate

#[test]
fn token_gate() {
    compare(&sizes(), |model: &TokenGate, rank| {
        Loss::mean_of(&model.forward(&stream(rank)).square())
    });
}

// ANCHOR: head_scale
/// A learned scale for each head, and a learned temperature for all.
#[model]
struct HeadScale {
    #[sharded(tp = "col")]
    v: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    scale: Param<(Heads,)>,
    temperature: Param<()>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, HeadDim), Hidden>,
}

#[forward]
impl HeadScale {
    fn forward(&self, x: &Stream) -> Stream {
        let heads = self.v.forward(x) * self.scale.tensor();
        self.o.forward(&(heads.tanh() * self.temperature.tensor()))
    }
}
// ANCHOR_END: head_scale

#[test]
fn scale_of_each_head() {
    compare(&sizes(), |model: &HeadScale, rank| {
        Loss::mean_of(&model.forward(&stream(rank)).square())
    });
}

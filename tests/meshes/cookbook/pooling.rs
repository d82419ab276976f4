//! One vector for each sequence.

use meshwright::prelude::*;

use super::compare;

dims! { Batch @ data, Seq, Hidden, Classes }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

fn sizes() -> Sizes {
    let mut sizes = Sizes::new().with(Hidden, 8).with(Classes, 3);
    sizes.init_std = 0.5;
    sizes
}

fn stream(rank: &Rank) -> Stream {
    let x: Tensor<(Batch, Seq, Hidden)> = Tensor::normal(rank, &[4, 6, 8], "x");
    x.slice(Seq, Tp)
}

// ANCHOR: first
/// The first position: only the rank that has it contributes to the sum.
#[model]
struct FirstToken {
    head: Linear<Hidden, Classes>,
}

#[forward]
impl FirstToken {
    fn forward(&self, x: &Stream) -> Tensor<(Batch, Classes)> {
        self.head.forward(&x.select(Seq, 0).all_reduce().tanh())
    }
}
// ANCHOR_END: first

#[test]
fn first_token() {
    compare(&sizes(), |model: &FirstToken, rank| {
        Loss::mean_of(&model.forward(&stream(rank)).square())
    });
}

// ANCHOR: attention
/// A learned query weighs the positions.
#[model]
struct AttentionPooling {
    query: Param<(Hidden,)>,
    head: Linear<Hidden, Classes>,
}

#[forward]
impl AttentionPooling {
    fn forward(&self, x: &Stream) -> Tensor<(Batch, Classes)> {
        let scores = (x * &self.query).sum(Hidden);
        let weights = scores.across().softmax_over(Seq);
        self.head.forward(&(x * weights).sum(Seq).all_reduce())
    }
}
// ANCHOR_END: attention

#[test]
fn attention_pooling() {
    compare(&sizes(), |model: &AttentionPooling, rank| {
        Loss::mean_of(&model.forward(&stream(rank)).square())
    });
}

// ANCHOR: masked
/// The mean of the positions that a learned score chooses.
#[model]
struct MaskedMean {
    score: Param<(Hidden,)>,
    layer: Linear<Hidden, Hidden>,
    head: Linear<Hidden, Classes>,
}

#[forward]
impl MaskedMean {
    fn forward(&self, x: &Stream) -> Tensor<(Batch, Classes)> {
        let chosen = (x * &self.score).sum(Hidden).gt(0.0);
        self.head.forward(&self.layer.forward(x).across().mean_where(Seq, &chosen))
    }
}
// ANCHOR_END: masked

#[test]
fn masked_mean() {
    compare(&sizes(), |model: &MaskedMean, rank| {
        Loss::mean_of(&model.forward(&stream(rank)).square())
    });
}

// ANCHOR: max
/// The largest element of each feature, over all positions.
#[model]
struct MaxPooling {
    layer: Linear<Hidden, Hidden>,
    head: Linear<Hidden, Classes>,
}

#[forward]
impl MaxPooling {
    fn forward(&self, x: &Stream) -> Tensor<(Batch, Classes)> {
        self.head.forward(&self.layer.forward(x).across().max(Seq))
    }
}
// ANCHOR_END: max

#[test]
fn max_pooling() {
    compare(&sizes(), |model: &MaxPooling, rank| {
        Loss::mean_of(&model.forward(&stream(rank)).square())
    });
}

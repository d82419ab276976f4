//! Training a part of a model.

use meshwright::nn::LoraOptions;
use meshwright::prelude::*;

use super::compare;

dims! { Batch @ data, Seq, Hidden, Ffn, Classes }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// A feed-forward block.
#[model]
struct Block {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        x + self.down.forward(&self.up.forward(&self.norm.forward(x)).silu())
    }
}

fn sizes() -> Sizes {
    let sizes = Sizes::new().with(Hidden, 8).with(Ffn, 16).with(Classes, 3).with(Layers, 2);
    let mut sizes = sizes;
    sizes.init_std = 0.3;
    sizes
}

fn stream(rank: &Rank) -> Stream {
    let x: Tensor<(Batch, Seq, Hidden)> = Tensor::normal(rank, &[4, 6, 8], "x");
    x.slice(Seq, Tp)
}

// ANCHOR: probe
/// A linear probe: the blocks have neither gradients nor optimizer state.
#[model]
struct Probe {
    #[frozen]
    blocks: Stack<Block>,
    #[init(zeros)]
    head: Linear<Hidden, Classes>,
}

#[forward]
impl Probe {
    fn forward(&self, x: &Stream) -> Tensor<(Batch, Classes)> {
        self.head.forward(&self.blocks.forward(x).mean(Seq).all_reduce()) + 1.0
    }
}
// ANCHOR_END: probe

#[test]
fn linear_probe() {
    compare(&sizes(), |model: &Probe, rank| Loss::mean_of(&model.forward(&stream(rank)).square()));
}

// ANCHOR: lora
/// The model is written as before; its sizes add adapters (Hu et al., 2021).
fn with_adapters(mut sizes: Sizes) -> Sizes {
    let targets = vec!["up".to_owned(), "down".to_owned()];
    sizes.lora = Some(LoraOptions { rank: 2, alpha: 4.0, targets, train: Vec::new() });
    sizes
}
// ANCHOR_END: lora

#[test]
fn adapters() {
    compare(&with_adapters(sizes()), |model: &Stack<Block>, rank| {
        Loss::mean_of(&model.forward(&stream(rank)).square())
    });
}

//! Layers of two kinds in one stack.

use meshwright::prelude::*;

use super::compare_on;

dims! { Batch @ data, Seq, Hidden, Ffn, Heads, HeadDim }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

// ANCHOR: kinds
/// A feed-forward block.
#[model]
struct FeedForward {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl FeedForward {
    fn forward(&self, x: &Stream) -> Stream {
        x + self.down.forward(&self.up.forward(&self.norm.forward(x)).silu())
    }
}

/// A block that adds the mean of all positions.
#[model]
struct Averaging {
    layer: Linear<Hidden, Hidden>,
}

#[forward]
impl Averaging {
    fn forward(&self, x: &Stream) -> Stream {
        x + self.layer.forward(&x.mean(Seq).all_reduce())
    }
}

/// A layer of either kind; `Sizes::with_kinds("blocks", ["Averaging", "FeedForward"])` repeats them over the stack.
#[model]
enum Block {
    FeedForward(FeedForward),
    Averaging(Averaging),
}

#[model]
struct Mixed {
    #[recompute]
    blocks: Stack<Block>,
}

#[forward]
impl Mixed {
    fn forward(&self, x: &Stream) -> Stream {
        self.blocks.forward(x)
    }
}
// ANCHOR_END: kinds

#[test]
fn two_kinds_of_layers() {
    let sizes = Sizes::new().with(Hidden, 8).with(Ffn, 16).with(Layers, 4);
    let mut sizes = sizes.with_kinds("blocks", ["Averaging", "FeedForward"]);
    sizes.init_std = 0.3;
    compare_on(&super::MESHES, &sizes, |model: &Mixed, rank| {
        let x: Tensor<(Batch, Seq, Hidden)> = Tensor::normal(rank, &[4, 6, 8], "x");
        Loss::mean_of(&model.forward(&x.slice(Seq, Tp)).square())
    });
}

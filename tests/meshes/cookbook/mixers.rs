//! Layers that mix positions without attention.

use meshwright::prelude::*;

use super::compare;

dims! { Batch @ data, Seq, Hidden, Tokens1, Ffn, Two }

type Stream = Tensor<(Batch, Seq, Hidden)>;

fn sizes() -> Sizes {
    let mut sizes =
        Sizes::new().with(Hidden, 8).with(Seq, 6).with(Tokens1, 12).with(Ffn, 8).with(Two, 2);
    sizes.init_std = 0.5;
    sizes
}

// ANCHOR: token_mixer
/// A feed-forward along the positions (Tolstikhin et al., 2021).
#[model]
struct TokenMixer {
    norm: LayerNorm<Hidden>,
    #[sharded(tp = "col")]
    up: Linear<Seq, Tokens1>,
    #[sharded(tp = "row")]
    down: Linear<Tokens1, Seq>,
}

#[forward]
impl TokenMixer {
    fn forward(&self, x: &Stream) -> Stream {
        let columns = self.norm.forward(x).permute((Batch, Hidden, Seq));
        let mixed = self.down.forward(&self.up.forward(&columns).gelu());
        x + mixed.permute((Batch, Seq, Hidden))
    }
}
// ANCHOR_END: token_mixer

#[test]
fn token_mixer() {
    compare(&sizes(), |model: &TokenMixer, rank| {
        let x = Tensor::normal(rank, &[4, 6, 8], "x");
        Loss::mean_of(&model.forward(&x).square())
    });
}

// ANCHOR: gated
/// A gated feed-forward whose gate and input are one matmul, split alike over tp.
#[model]
struct Gated {
    #[sharded(tp = "col")]
    both: Linear<Hidden, (Ffn, Two)>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Gated {
    fn forward(&self, x: &Stream) -> Stream {
        let both = self.both.forward(x);
        self.down.forward(&(both.select(Two, 0).silu() * both.select(Two, 1)))
    }
}
// ANCHOR_END: gated

#[test]
fn gated_feed_forward() {
    compare(&sizes(), |model: &Gated, rank| {
        let x = Tensor::normal(rank, &[4, 6, 8], "x");
        Loss::mean_of(&model.forward(&x).square())
    });
}

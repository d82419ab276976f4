//! Recomputed layers over a sequence-parallel stream with a user-defined function, whose results are saved, and the
//! same layers composed of the library's operations.

use meshwright::prelude::*;
use meshwright_examples::gated_norm::GatedRmsNorm;

dims! {
    /// Sequences of the global batch.
    pub Batch @ data,
    /// Positions.
    pub Seq,
    /// Residual stream.
    pub Hidden,
    /// Hidden layer of the feed-forward network.
    pub Ffn,
    /// Token ids.
    pub Vocab,
}

/// The stream of a sequence-parallel region.
pub type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

macro_rules! models {
    ($(#[$doc:meta])* $net:ident, $block:ident, $norm:ty, |$model:ident, $x:ident, $gate:ident| $normed:expr) => {
        $(#[$doc])*
        #[model]
        pub struct $net {
            embed: Embedding<Vocab, Hidden>,
            #[recompute(save = [norm])]
            blocks: Stack<$block>,
            head: LmHead<Hidden, Vocab>,
        }

        /// The layer.
        #[model]
        pub struct $block {
            up: Linear<Hidden, Ffn>,
            gate: Linear<Hidden, Ffn>,
            norm: $norm,
            down: Linear<Ffn, Hidden>,
        }

        #[forward]
        impl $block {
            fn forward(&self, x: &Stream) -> Stream {
                let ($model, $x, $gate) = (self, self.up.forward(x), self.gate.forward(x));
                x + self.down.forward(&$normed)
            }
        }

        impl $net {
            /// Computes the loss of `tokens`.
            pub fn loss(
                &self,
                tokens: &Tokens<(Batch, Seq)>,
                targets: &Targets<(Batch, Seq)>,
            ) -> Loss<(Batch, Seq)> {
                let x = self.embed.forward(tokens).slice(Seq, Tp);
                self.head.loss(&self.blocks.forward(&x).gather(Seq), targets)
            }
        }
    };
}

models! {
    /// A model with a function that has a backward of its own.
    Gated, GatedBlock, GatedRmsNorm<Ffn>, |model, x, gate| model.norm.forward(&x, &gate)
}

models! {
    /// Composed of a norm, SiLU and a product.
    Composed, ComposedBlock, RmsNorm<Ffn>, |model, x, gate| model.norm.forward(&x) * gate.silu()
}

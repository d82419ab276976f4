//! Multi-head latent attention (DeepSeek-V2, 2024): keys and values from one small latent, rotary positions apart.

use meshwright::prelude::*;

use super::compare;

dims! {
    Batch @ data, Seq, Hidden, Heads, KvRank, KvParts, HeadParts, Nope, RopeDim, ValueDim, QkDim, Latent,
}

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

// ANCHOR: latent
#[model]
struct LatentAttention {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, QkDim)>,
    down: Linear<Hidden, KvParts>,
    norm: RmsNorm<Latent>,
    #[sharded(tp = "col")]
    up: Linear<Latent, (Heads, HeadParts)>,
    attention: Attention<Heads, Heads, QkDim, Causal, ValueDim>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, ValueDim), Hidden>,
}

#[forward]
impl LatentAttention {
    fn forward(&self, x: &Stream) -> Stream {
        let (latent, k_rope) = self.down.forward(&x.gather(Seq)).cut(KvParts, (Latent, RopeDim), 6);
        let (k_nope, v) =
            self.up.forward(&self.norm.forward(&latent)).cut(HeadParts, (Nope, ValueDim), 2);
        let k = k_nope.concat(&k_rope.expand_as(Heads, &k_nope), (Nope, RopeDim), QkDim);
        self.o.forward(&self.attention.forward(&(self.q.forward(x), k, v)))
    }
}
// ANCHOR_END: latent

#[test]
fn latent_attention() {
    let sizes = Sizes::new().with(Hidden, 8).with(Heads, 4).with(QkDim, 4).with(KvParts, 8);
    let mut sizes = sizes.with(Latent, 6).with(HeadParts, 5).with(ValueDim, 3);
    sizes.init_std = 0.5;
    compare(&sizes, |model: &LatentAttention, rank| {
        let x: Tensor<(Batch, Seq, Hidden)> = Tensor::normal(rank, &[4, 6, 8], "x");
        Loss::mean_of(&model.forward(&x.slice(Seq, Tp)).square())
    });
}

//! Multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1): keys and values of all heads come from
//! one short vector for each token, and positions rotate only a part of queries and keys.

use meshwright::prelude::*;

use super::dims::{
    Compressed, Heads, Hidden, KeyValue, Latent, PlainDim, QueryDim, QueryLatent, RotatedDim, Seq,
    Stream, ValueDim,
};

/// Queries by way of a latent vector.
#[model]
pub struct LatentQuery {
    a: Linear<Hidden, QueryLatent>,
    norm: RmsNorm<QueryLatent>,
    #[sharded(tp = "col")]
    b: Linear<QueryLatent, (Heads, QueryDim)>,
}

/// Multi-head latent attention.
#[model]
pub struct LatentAttention {
    #[sharded(tp = "col")]
    q: Option<Linear<Hidden, (Heads, QueryDim)>>,
    latent_q: Option<LatentQuery>,
    kv_a: Linear<Hidden, Compressed>,
    kv_norm: RmsNorm<Latent>,
    #[sharded(tp = "col")]
    kv_b: Linear<Latent, (Heads, KeyValue)>,
    rope: Rope<RotatedDim>,
    /// The attention itself, without projections.
    #[sharded(cp = "ring")]
    pub core: Attention<Heads, Heads, QueryDim, Causal, ValueDim>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, ValueDim), Hidden>,
    sizes: HeadSizes,
}

#[forward]
impl LatentAttention {
    /// Returns the stream that the attention adds.
    pub fn forward(&self, x: &Stream) -> Stream {
        let q = match (&self.latent_q, &self.q) {
            (Some(latent), _) => latent.b.forward(&latent.norm.forward(&latent.a.forward(x))),
            (None, Some(q)) => q.forward(x),
            (None, None) => unreachable!("the sizes of the model have one of them"),
        };
        let HeadSizes { latent, plain } = self.sizes;
        let (q_plain, q_rotated) = q.cut(QueryDim, (PlainDim, RotatedDim), plain);
        let (kv, k_rotated) = self.kv_a.forward(x).cut(Compressed, (Latent, RotatedDim), latent);
        let kv = self.kv_b.forward(&self.kv_norm.forward(&kv));
        let (k_plain, v) = kv.cut(KeyValue, (PlainDim, ValueDim), plain);
        // The rotated part is one for all heads.
        let k_rotated = self.rope.forward(&k_rotated.gather(Seq)).expand_as(Heads, &k_plain);
        let q = q_plain.concat(&self.rope.forward(&q_rotated), (PlainDim, RotatedDim), QueryDim);
        let k = k_plain.concat(&k_rotated, (PlainDim, RotatedDim), QueryDim);
        self.o.forward(&self.core.forward(&(q, k, v)))
    }
}

/// The sizes that vectors are cut at.
#[derive(Debug, Clone, Copy)]
pub struct HeadSizes {
    latent: usize,
    plain: usize,
}

impl Build for HeadSizes {
    fn build(builder: &mut Builder<'_>) -> Self {
        HeadSizes { latent: builder.size::<Latent>(), plain: builder.size::<PlainDim>() }
    }
}

//! An OLMo 2: norms after attention and feed-forward only, and norms over all queries and all keys, on a
//! sequence-parallel residual stream with context-parallel attention.

use meshwright::prelude::*;

use super::{HF_NAMES, Olmo2Config};

dims! {
    /// Sequences of the global batch, distributed over the data axes.
    Batch @ data,
    /// Positions, distributed over the ranks of `cp`.
    Seq @ cp,
    /// Residual stream.
    Hidden,
    /// Hidden layer of the MLP.
    Ffn,
    /// Query heads.
    Heads,
    /// Key-value heads, each shared by `Heads / KvHeads` query heads.
    KvHeads,
    /// Elements of one head.
    HeadDim,
    /// Token ids.
    Vocab,
}

/// The residual stream, which is sequence-parallel outside of tensor-parallel regions.
pub type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// SwiGLU MLP.
#[model]
pub struct Mlp {
    #[sharded(tp = "col")]
    gate: Linear<Hidden, Ffn>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Mlp {
    /// Returns the output of the MLP, before the norm that follows.
    pub fn forward(&self, x: &Stream) -> Stream {
        self.down.forward(&(self.gate.forward(x).silu() * self.up.forward(x)))
    }
}

/// Grouped-query attention with rotary position embedding, and norms over the queries of all heads and over the keys of
/// all heads.
#[model]
pub struct SelfAttention {
    #[sharded(tp = "col")]
    q: Affine<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    q_norm: RmsNorm<(Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Affine<Hidden, (KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    k_norm: RmsNorm<(KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Affine<Hidden, (KvHeads, HeadDim)>,
    rope: Rope<HeadDim>,
    /// The attention itself, without projections.
    #[sharded(cp = "ring")]
    pub core: Attention<Heads, KvHeads, HeadDim>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Affine<(Heads, HeadDim), Hidden>,
}

#[forward]
impl SelfAttention {
    /// Returns the output of the attention, before the norm that follows.
    pub fn forward(&self, x: &Stream) -> Stream {
        let q = self.rope.forward(&self.q_norm.forward(&self.q.forward(x)));
        let k = self.rope.forward(&self.k_norm.forward(&self.k.forward(x)));
        let v = self.v.forward(x);
        self.o.forward(&self.core.forward(&(q, k, v)))
    }
}

/// Transformer block with a norm after each branch, and none before.
#[model]
pub struct Block {
    /// The attention, with its projections.
    pub attn: SelfAttention,
    post_attn_norm: RmsNorm<Hidden>,
    /// The feed-forward.
    pub mlp: Mlp,
    post_mlp_norm: RmsNorm<Hidden>,
}

#[forward]
impl Block {
    /// Returns the stream after the block.
    pub fn forward(&self, x: &Stream) -> Stream {
        let x = x + self.post_attn_norm.forward(&self.attn.forward(x));
        &x + self.post_mlp_norm.forward(&self.mlp.forward(&x))
    }
}

/// The model. Its `forward` runs the pipeline stages in order.
#[model]
pub struct Olmo2 {
    #[pipeline_stage]
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage]
    blocks: Stack<Block>,
    #[pipeline_stage]
    norm: RmsNorm<Hidden>,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    #[tied(embed, when = "tie_word_embeddings")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Olmo2 {
    /// Returns the stream before the head.
    pub fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for Olmo2 {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = Olmo2Config;

    const HF_NAMES: &'static [HfName] = HF_NAMES;

    fn sizes(config: &Olmo2Config) -> Sizes {
        let mut sizes = Sizes::new()
            .with(Hidden, config.hidden)
            .with(Ffn, config.ffn)
            .with(Heads, config.heads)
            .with(KvHeads, config.kv_heads)
            .with(HeadDim, config.head_dim)
            .with(Vocab, config.vocab)
            .with(Layers, config.layers)
            .with_flag("tie_word_embeddings", config.tied)
            .with_optional("bias", config.biases);
        if let Some(row) = config.padding {
            sizes = sizes.with_padding(Vocab, row);
        }
        sizes.norm_eps = config.norm_eps as f32;
        sizes.rope = config.rope.clone();
        sizes
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

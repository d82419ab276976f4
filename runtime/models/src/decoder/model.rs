//! A decoder like Llama: context-parallel attention, sequence-parallel residual stream, column- and row-parallel
//! layers, vocabulary-parallel embedding and head.

use meshwright::prelude::*;

use super::DecoderConfig;

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
    gate: Affine<Hidden, Ffn>,
    #[sharded(tp = "col")]
    up: Affine<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Affine<Ffn, Hidden>,
}

#[forward]
impl Mlp {
    /// Returns the stream that the MLP adds.
    pub fn forward(&self, x: &Stream) -> Stream {
        self.down.forward(&(self.gate.forward(x).silu() * self.up.forward(x)))
    }
}

/// Grouped-query attention with rotary position embedding.
#[model]
pub struct SelfAttention {
    #[sharded(tp = "col")]
    q: Affine<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Affine<Hidden, (KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Affine<Hidden, (KvHeads, HeadDim)>,
    q_norm: Option<RmsNorm<HeadDim>>,
    k_norm: Option<RmsNorm<HeadDim>>,
    rope: Rope<HeadDim>,
    /// The attention itself, without projections.
    #[sharded(cp = "ring")]
    pub core: Attention<Heads, KvHeads, HeadDim>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Affine<(Heads, HeadDim), Hidden>,
}

#[forward]
impl SelfAttention {
    /// Returns the stream that the attention adds.
    pub fn forward(&self, x: &Stream) -> Stream {
        let q = self.rope.forward(&self.q_norm.forward(&self.q.forward(x)));
        let k = self.rope.forward(&self.k_norm.forward(&self.k.forward(x)));
        let v = self.v.forward(x);
        self.o.forward(&self.core.forward(&(q, k, v)))
    }
}

/// Transformer block.
#[model]
pub struct Block {
    attn_norm: RmsNorm<Hidden>,
    /// The attention, with its projections.
    pub attn: SelfAttention,
    mlp_norm: RmsNorm<Hidden>,
    /// The feed-forward.
    pub mlp: Mlp,
}

#[forward]
impl Block {
    /// Returns the stream after the block.
    pub fn forward(&self, x: &Stream) -> Stream {
        let x = x + self.attn.forward(&self.attn_norm.forward(x));
        &x + self.mlp.forward(&self.mlp_norm.forward(&x))
    }
}

/// The model. Its `forward` runs the pipeline stages in order.
#[model]
pub struct Llama {
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
impl Llama {
    /// Returns the stream before the head.
    pub fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for Llama {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = DecoderConfig;

    fn hf_names(config: &DecoderConfig) -> Vec<HfName> {
        config.hf_names()
    }

    fn sizes(config: &DecoderConfig) -> Sizes {
        let mut sizes = Sizes::new()
            .with(Hidden, config.hidden)
            .with(Ffn, config.ffn)
            .with(Heads, config.heads)
            .with(KvHeads, config.kv_heads)
            .with(HeadDim, config.head_dim)
            .with(Vocab, config.vocab)
            .with(Layers, config.layers)
            .with_flag("tie_word_embeddings", config.tied)
            .with_optional("o.bias", config.output_bias);
        for (fields, is_present) in [
            (["q.bias", "k.bias", "v.bias"], config.qkv_bias),
            (["gate.bias", "up.bias", "down.bias"], config.mlp_bias),
        ] {
            for field in fields {
                sizes = sizes.with_optional(field, is_present);
            }
        }
        for field in ["q_norm", "k_norm"] {
            sizes = sizes.with_optional(field, config.row.qk_norm);
        }
        if let Some(row) = config.padding {
            sizes = sizes.with_padding(Vocab, row);
        }
        sizes.norm_eps = config.norm_eps as f32;
        sizes.rope = config.rope.clone();
        sizes.ropes = config.ropes();
        sizes.attention.windows = config.windows();
        sizes
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

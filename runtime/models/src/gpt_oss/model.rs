//! A gpt-oss: attention with sinks and windows on every other layer, and mixtures of experts with biases.

use meshwright::prelude::*;

use super::dims::{
    Batch, Experts, Ffn, GateUp, HeadDim, Heads, Hidden, KvHeads, Seq, Stream, TopK, Vocab,
};
use super::{GptOssConfig, HF_NAMES, Mixture};

/// Grouped-query attention with rotary position embedding, biases and sinks.
#[model]
pub struct SelfAttention {
    #[sharded(tp = "col")]
    q: Affine<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Affine<Hidden, (KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Affine<Hidden, (KvHeads, HeadDim)>,
    rope: Rope<HeadDim>,
    #[sharded(tp = "col")]
    sinks: AttentionSinks<Heads>,
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
        let q = self.rope.forward(&self.q.forward(x));
        let k = self.rope.forward(&self.k.forward(x));
        let v = self.v.forward(x);
        self.o.forward(&self.core.forward(&(q, k, v, &self.sinks)))
    }
}

/// Transformer block.
#[model]
pub struct Block {
    attn_norm: RmsNorm<Hidden>,
    /// The attention, with its projections.
    pub attn: SelfAttention,
    moe_norm: RmsNorm<Hidden>,
    /// The mixture of experts.
    pub moe: Mixture,
}

#[forward]
impl Block {
    /// Returns the stream after the block.
    pub fn forward(&self, x: &Stream) -> Stream {
        let x = x + self.attn.forward(&self.attn_norm.forward(x));
        &x + self.moe.forward(&self.moe_norm.forward(&x))
    }
}

/// The model. Its `forward` runs the pipeline stages in order.
#[model]
pub struct GptOss {
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
impl GptOss {
    /// Returns the stream before the head.
    pub fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for GptOss {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = GptOssConfig;

    const HF_NAMES: &'static [HfName] = HF_NAMES;

    fn sizes(config: &GptOssConfig) -> Sizes {
        let mut sizes = Sizes::new()
            .with(Hidden, config.hidden)
            .with(Ffn, config.ffn)
            .with(GateUp, 2)
            .with(Heads, config.heads)
            .with(KvHeads, config.kv_heads)
            .with(HeadDim, config.head_dim)
            .with(Experts, config.experts)
            .with(TopK, config.top_k)
            .with(Vocab, config.vocab)
            .with(Layers, config.layers)
            .with_flag("tie_word_embeddings", config.tied)
            .with_number("swiglu_alpha", config.alpha as f32)
            .with_number("swiglu_limit", config.limit as f32)
            .with_optional("router.bias", true);
        for field in ["q.bias", "k.bias", "v.bias", "o.bias"] {
            sizes = sizes.with_optional(field, config.biases);
        }
        if let Some(row) = config.padding {
            sizes = sizes.with_padding(Vocab, row);
        }
        sizes.norm_eps = config.norm_eps as f32;
        sizes.rope = config.rope.clone();
        sizes.penalties = config.router.penalties();
        // The weights of a token are the softmax over the logits of the experts that it has chosen.
        sizes.router = RouterOptions::default();
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

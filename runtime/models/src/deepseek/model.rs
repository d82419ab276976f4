//! A DeepSeek-V3: latent attention, and mixtures of experts behind a few dense layers.

use meshwright::prelude::*;
use meshwright_core::nn::RopeLayout;

use super::dims::{
    Batch, Compressed, ExpertFfn, Experts, Ffn, Heads, Hidden, KeyValue, Latent, PlainDim,
    QueryDim, QueryLatent, RotatedDim, Seq, SharedFfn, Stream, TopK, ValueDim, Vocab,
};
use super::{DeepseekConfig, HF_NAMES, LatentAttention, Mixture, Mlp};

/// Epsilon of the norms of latent vectors, whatever that of the others is.
const LATENT_EPS: f32 = 1e-6;

/// Transformer block with a dense feed-forward.
#[model]
pub struct DenseBlock {
    attn_norm: RmsNorm<Hidden>,
    /// The attention, with its projections.
    pub attn: LatentAttention,
    mlp_norm: RmsNorm<Hidden>,
    /// The feed-forward.
    pub mlp: Mlp,
}

#[forward]
impl DenseBlock {
    /// Returns the stream after the block.
    pub fn forward(&self, x: &Stream) -> Stream {
        let x = x + self.attn.forward(&self.attn_norm.forward(x));
        &x + self.mlp.forward(&self.mlp_norm.forward(&x))
    }
}

/// Transformer block with a mixture of experts.
#[model]
pub struct MoeBlock {
    attn_norm: RmsNorm<Hidden>,
    /// The attention, with its projections.
    pub attn: LatentAttention,
    mlp_norm: RmsNorm<Hidden>,
    /// The mixture of experts.
    pub moe: Mixture,
}

#[forward]
impl MoeBlock {
    /// Returns the stream after the block.
    pub fn forward(&self, x: &Stream) -> Stream {
        let x = x + self.attn.forward(&self.attn_norm.forward(x));
        &x + self.moe.forward(&self.mlp_norm.forward(&x))
    }
}

/// Transformer block.
#[model]
#[expect(clippy::large_enum_variant, reason = "layers stay where they were built")]
pub enum Block {
    /// One of the first layers.
    Dense(DenseBlock),
    /// One of the others.
    Moe(MoeBlock),
}

/// The model. Its `forward` runs the pipeline stages in order.
#[model]
pub struct Deepseek {
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
impl Deepseek {
    /// Returns the stream before the head.
    pub fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for Deepseek {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = DeepseekConfig;

    const HF_NAMES: &'static [HfName] = HF_NAMES;

    fn sizes(config: &DeepseekConfig) -> Sizes {
        let mut sizes = Sizes::new()
            .with(Hidden, config.hidden)
            .with(Ffn, config.ffn)
            .with(ExpertFfn, config.expert_ffn)
            .with(SharedFfn, config.shared_experts * config.expert_ffn)
            .with(Heads, config.heads)
            .with(QueryDim, config.plain_dim + config.rotated_dim)
            .with(PlainDim, config.plain_dim)
            .with(RotatedDim, config.rotated_dim)
            .with(Compressed, config.latent + config.rotated_dim)
            .with(Latent, config.latent)
            .with(KeyValue, config.plain_dim + config.value_dim)
            .with(ValueDim, config.value_dim)
            .with(Experts, config.experts)
            .with(TopK, config.top_k)
            .with(Vocab, config.vocab)
            .with(Layers, config.layers)
            .with_flag("tie_word_embeddings", config.tied)
            .with_optional("attn.q", config.query_latent.is_none())
            .with_optional("attn.latent_q", config.query_latent.is_some())
            .with_kinds("blocks", config.kinds());
        if let Some(latent) = config.query_latent {
            sizes = sizes
                .with(QueryLatent, latent)
                .with_norm("latent_q.norm", NormOptions { eps: LATENT_EPS, offset: 0.0 });
        }
        sizes = sizes.with_norm("kv_norm", NormOptions { eps: LATENT_EPS, offset: 0.0 });
        if let Some(row) = config.padding {
            sizes = sizes.with_padding(Vocab, row);
        }
        sizes.norm_eps = config.norm_eps as f32;
        sizes.rope = config.rope.clone();
        sizes.rope_layout =
            if config.interleaved { RopeLayout::Interleaved } else { RopeLayout::HalfSplit };
        sizes.attention.scale = Some(config.attention_scale() as f32);
        if config.has_mixtures() {
            sizes = sizes.with_optional("router.choice_bias", true);
            sizes.choice_bias_rate = config.router.bias_rate as f32;
        }
        sizes.penalties = config.router.penalties();
        sizes.router = RouterOptions {
            score: RouterScore::Sigmoid,
            normalize: config.normalize,
            scale: config.routed_scale as f32,
            sum_epsilon: 1e-20,
            groups: config.groups(),
        };
        sizes
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

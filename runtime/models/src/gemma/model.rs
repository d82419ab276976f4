//! A Gemma 2 or 3: norms before and after attention and feed-forward, soft caps or norms of queries and keys, windows
//! in most layers, and an embedding that is scaled, on a sequence-parallel residual stream with context-parallel
//! attention.

use half::bf16;
use meshwright::prelude::*;
use meshwright_backend::DType;

use super::{GemmaConfig, names};

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

/// The square root of the width of the stream, which multiplies embeddings.
#[derive(Debug)]
struct SqrtOfWidth(f32);

impl Build for SqrtOfWidth {
    fn build(builder: &mut Builder<'_>) -> SqrtOfWidth {
        let factor = (builder.size::<Hidden>() as f64).sqrt() as f32;
        // `transformers` casts the factor to the dtype of the embeddings before it multiplies.
        SqrtOfWidth(match builder.rank().compute_dtype() {
            DType::Bf16 => bf16::from_f32(factor).to_f32(),
            _ => factor,
        })
    }
}

/// Embedding whose rows are multiplied by `sqrt(Hidden)`.
#[model]
pub struct ScaledEmbedding {
    #[sharded(tp = "vocab", scatter = Seq)]
    table: Embedding<Vocab, Hidden>,
    factor: SqrtOfWidth,
}

#[forward]
impl ScaledEmbedding {
    /// Returns the stream before the first block.
    pub fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream {
        self.table.forward(tokens) * self.factor.0
    }
}

/// GeGLU MLP.
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
        self.down.forward(&(self.gate.forward(x).gelu_tanh() * self.up.forward(x)))
    }
}

/// Grouped-query attention with rotary position embedding; in Gemma 3 also with norms of each query and key.
#[model]
pub struct SelfAttention {
    #[sharded(tp = "col")]
    q: Affine<Hidden, (Heads, HeadDim)>,
    q_norm: Option<RmsNorm<HeadDim>>,
    #[sharded(tp = "col")]
    k: Affine<Hidden, (KvHeads, HeadDim)>,
    k_norm: Option<RmsNorm<HeadDim>>,
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

/// Transformer block with norms before and after each branch.
#[model]
pub struct Block {
    attn_norm: RmsNorm<Hidden>,
    /// The attention, with its projections.
    pub attn: SelfAttention,
    post_attn_norm: RmsNorm<Hidden>,
    mlp_norm: RmsNorm<Hidden>,
    /// The feed-forward.
    pub mlp: Mlp,
    post_mlp_norm: RmsNorm<Hidden>,
}

#[forward]
impl Block {
    /// Returns the stream after the block.
    pub fn forward(&self, x: &Stream) -> Stream {
        let attended = self.attn.forward(&self.attn_norm.forward(x));
        let x = x + self.post_attn_norm.forward(&attended);
        let mixed = self.mlp.forward(&self.mlp_norm.forward(&x));
        &x + self.post_mlp_norm.forward(&mixed)
    }
}

/// The model. Its `forward` runs the pipeline stages in order.
#[model]
pub struct Gemma {
    #[pipeline_stage]
    embed: ScaledEmbedding,
    #[pipeline_stage]
    blocks: Stack<Block>,
    #[pipeline_stage]
    norm: RmsNorm<Hidden>,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    #[tied(embed.table, when = "tie_word_embeddings")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Gemma {
    /// Returns the stream before the head.
    pub fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for Gemma {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = GemmaConfig;

    fn hf_names(config: &GemmaConfig) -> Vec<HfName> {
        names::of(config.kind).to_vec()
    }

    fn sizes(config: &GemmaConfig) -> Sizes {
        let mut sizes = Sizes::new()
            .with(Hidden, config.hidden)
            .with(Ffn, config.ffn)
            .with(Heads, config.heads)
            .with(KvHeads, config.kv_heads)
            .with(HeadDim, config.head_dim)
            .with(Vocab, config.vocab)
            .with(Layers, config.layers)
            .with_flag("tie_word_embeddings", config.tied)
            .with_optional("bias", config.biases)
            .with_optional("q_norm", config.is_third())
            .with_optional("k_norm", config.is_third());
        if let Some(row) = config.padding {
            sizes = sizes.with_padding(Vocab, row);
        }
        sizes.norm_eps = config.norm_eps as f32;
        sizes.norm_offset = 1.0;
        let (windows, ropes) = config.of_layers();
        sizes.ropes = ropes;
        sizes.attention.windows = windows;
        sizes.attention.scale = Some((1.0 / config.query_scalar.sqrt()) as f32);
        sizes.attention.soft_cap =
            config.attention_cap.filter(|_| !config.is_third()).map(|cap| cap as f32);
        sizes.head.soft_cap = config.logit_cap.map(|cap| cap as f32);
        sizes
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

//! A GPT-NeoX or Pythia: LayerNorm, biases, GELU, partly rotated heads, and attention and feed-forward side by side, on
//! a sequence-parallel residual stream with context-parallel attention.

use meshwright::prelude::*;

use super::{GptNeoxConfig, HF_NAMES};

dims! {
    /// Sequences of the global batch, distributed over the data axes.
    Batch @ data,
    /// Positions of a sequence, distributed over the ranks of `cp`.
    Seq @ cp,
    /// Residual stream.
    Hidden,
    /// Hidden layer of the MLP.
    Ffn,
    /// Attention heads.
    Heads,
    /// Query, key and value of one head, one after the other.
    HeadParts,
    /// Elements of one head.
    HeadDim,
    /// Token ids.
    Vocab,
}

/// The residual stream, which is sequence-parallel outside of tensor-parallel regions.
pub type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// MLP with biases.
#[model]
pub struct Mlp {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "col")]
    up_bias: Bias<Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
    down_bias: Bias<Hidden>,
}

#[forward]
impl Mlp {
    /// Returns the stream that the MLP adds.
    pub fn forward(&self, x: &Stream) -> Stream {
        let inside = self.up_bias.forward(&self.up.forward(x)).gelu();
        self.down_bias.forward(&self.down.forward(&inside))
    }
}

/// Multi-head attention whose queries, keys and values are the output of one layer.
#[model]
pub struct SelfAttention {
    #[sharded(tp = "col")]
    qkv: Affine<Hidden, (Heads, HeadParts)>,
    rope: Rope<HeadDim>,
    /// The attention itself, without projections.
    #[sharded(cp = "ring")]
    pub core: Attention<Heads, Heads, HeadDim>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Affine<(Heads, HeadDim), Hidden>,
}

#[forward]
impl SelfAttention {
    /// Returns the stream that the attention adds.
    pub fn forward(&self, x: &Stream) -> Stream {
        let qkv = self.qkv.forward(x);
        let width = qkv.sizes()[3] / 3;
        let (q, k, v) = qkv.cut(HeadParts, (HeadDim, HeadDim, HeadDim), [width, width]);
        let (q, k) = (self.rope.forward(&q), self.rope.forward(&k));
        self.o.forward(&self.core.forward(&(q, k, v)))
    }
}

/// The input of the feed-forward of a block.
#[derive(Debug, Clone, Copy, PartialEq)]
enum MlpReads {
    /// The stream before the block, as the attention.
    BlockInput,
    /// The stream after the attention.
    AttentionOutput,
}

impl Build for MlpReads {
    fn build(builder: &mut Builder<'_>) -> MlpReads {
        match builder.sizes().flag("use_parallel_residual") {
            true => MlpReads::BlockInput,
            false => MlpReads::AttentionOutput,
        }
    }
}

/// Transformer block, parallel or serial.
#[model]
pub struct Block {
    attn_norm: LayerNorm<Hidden>,
    /// The attention, with its projections.
    pub attn: SelfAttention,
    mlp_norm: LayerNorm<Hidden>,
    /// The feed-forward. Matmul results are saved; GELU, which is as wide but far cheaper, is recomputed.
    #[recompute(save = [up, down])]
    pub mlp: Mlp,
    mlp_reads: MlpReads,
}

#[forward]
impl Block {
    /// Returns the stream after the block.
    pub fn forward(&self, x: &Stream) -> Stream {
        let after = x + self.attn.forward(&self.attn_norm.forward(x));
        let input = match self.mlp_reads {
            MlpReads::BlockInput => x,
            MlpReads::AttentionOutput => &after,
        };
        &after + self.mlp.forward(&self.mlp_norm.forward(input))
    }
}

/// The model. Its `forward` runs the pipeline stages in order.
#[model]
pub struct GptNeox {
    #[pipeline_stage]
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage]
    blocks: Stack<Block>,
    #[pipeline_stage]
    norm: LayerNorm<Hidden>,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    #[tied(embed, when = "tie_word_embeddings")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl GptNeox {
    /// Returns the stream before the head.
    pub fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for GptNeox {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = GptNeoxConfig;

    const HF_NAMES: &'static [HfName] = HF_NAMES;

    fn sizes(config: &GptNeoxConfig) -> Sizes {
        let mut sizes = Sizes::new()
            .with(Hidden, config.hidden)
            .with(Ffn, config.ffn)
            .with(Heads, config.heads)
            .with(HeadParts, 3 * config.head_dim())
            .with(HeadDim, config.head_dim())
            .with(Vocab, config.vocab)
            .with(Layers, config.layers)
            .with_flag("tie_word_embeddings", config.tied)
            .with_flag("use_parallel_residual", config.parallel)
            .with_optional("bias", config.biases);
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

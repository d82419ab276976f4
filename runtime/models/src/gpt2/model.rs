//! A GPT-2: learned positions, LayerNorm, biases, GELU and a tied head, on a sequence-parallel residual stream, with
//! context-parallel attention.

use meshwright::prelude::*;

use super::{Gpt2Config, Gpt2Dropout, HF_NAMES};

dims! {
    /// Sequences of the global batch, distributed over the data axes.
    Batch @ data,
    /// Positions of a sequence, distributed over the ranks of `cp`.
    Seq @ cp,
    /// Rows of the position table: the maximum sequence length.
    Positions,
    /// Residual stream.
    Hidden,
    /// Hidden layer of the MLP.
    Ffn,
    /// Attention heads.
    Heads,
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
    #[init(scaled)]
    down: Linear<Ffn, Hidden>,
    down_bias: Bias<Hidden>,
    dropout: Dropout,
}

#[forward]
impl Mlp {
    /// Returns the stream that the MLP adds.
    pub fn forward(&self, x: &Stream) -> Stream {
        let inside = self.up_bias.forward(&self.up.forward(x)).gelu_tanh();
        self.dropout.forward(&self.down_bias.forward(&self.down.forward(&inside)))
    }
}

/// Multi-head attention with biases.
#[model]
pub struct SelfAttention {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    q_bias: Bias<(Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k_bias: Bias<(Heads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    v_bias: Bias<(Heads, HeadDim)>,
    /// The attention itself, without projections.
    #[sharded(cp = "ring")]
    pub core: Attention<Heads, Heads, HeadDim>,
    #[sharded(tp = "row", scatter = Seq)]
    #[init(scaled)]
    o: Linear<(Heads, HeadDim), Hidden>,
    o_bias: Bias<Hidden>,
    dropout: Dropout,
}

#[forward]
impl SelfAttention {
    /// Returns the stream that the attention adds.
    pub fn forward(&self, x: &Stream) -> Stream {
        let q = self.q_bias.forward(&self.q.forward(x));
        let k = self.k_bias.forward(&self.k.forward(x));
        let v = self.v_bias.forward(&self.v.forward(x));
        let attended = self.core.forward(&(q, k, v));
        self.dropout.forward(&self.o_bias.forward(&self.o.forward(&attended)))
    }
}

/// Transformer block.
#[model]
pub struct Block {
    attn_norm: LayerNorm<Hidden>,
    /// The attention, with its projections.
    pub attn: SelfAttention,
    mlp_norm: LayerNorm<Hidden>,
    /// The feed-forward. Matmul results are saved; GELU, which is as wide but far cheaper, is recomputed.
    #[recompute(save = [up, down])]
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

/// The model. Its `forward` runs the pipeline stages in order; each layer of the stack is its own FSDP unit.
#[model]
pub struct Gpt2 {
    #[pipeline_stage]
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage]
    positions: LearnedPositions<Positions, Hidden>,
    #[pipeline_stage]
    dropout: Dropout,
    #[pipeline_stage]
    blocks: Stack<Block>,
    #[pipeline_stage]
    norm: LayerNorm<Hidden>,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    #[tied(embed)]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Gpt2 {
    /// Returns the stream before the head.
    pub fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for Gpt2 {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = Gpt2Config;

    const HF_NAMES: &'static [HfName] = HF_NAMES;

    fn sizes(config: &Gpt2Config) -> Sizes {
        let mut sizes = Sizes::new()
            .with(Positions, config.positions)
            .with(Hidden, config.hidden)
            .with(Ffn, config.ffn)
            .with(Heads, config.heads)
            .with(HeadDim, config.head_dim())
            .with(Vocab, config.vocab)
            .with(Layers, config.layers);
        sizes.norm_eps = config.norm_eps as f32;
        let Gpt2Dropout { embeddings, attention, residual } = config.dropout;
        sizes.attention.dropout = attention as f32;
        sizes
            .with_dropout("dropout", embeddings as f32)
            .with_dropout("attn.dropout", residual as f32)
            .with_dropout("mlp.dropout", residual as f32)
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

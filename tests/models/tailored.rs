//! A language model whose layers have settings by field and by layer: biases, norms over split heads, offsets, rotary
//! embeddings, dropout, and adapters.

use meshwright::checkpoint::hf::Gpt2Config;
use meshwright::nn::{LoraOptions, NormOptions};
use meshwright::prelude::*;
use meshwright::rotary::RopeParameters;

dims! {
    /// Sequences of the global batch.
    pub Batch @ data,
    /// Positions, distributed over the ranks of `cp`.
    pub Seq @ cp,
    /// Residual stream.
    pub Hidden,
    /// Hidden layer of the networks.
    pub Ffn,
    /// Heads of each attention.
    pub Heads,
    /// Elements of one head.
    pub HeadDim,
    /// Token ids.
    pub Vocab,
}

/// The residual stream.
pub type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// Attention with norms over all heads, as in OLMo 2.
#[model]
pub struct NormedAttention {
    #[sharded(tp = "col")]
    q: Affine<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    q_norm: RmsNorm<(Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Affine<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k_norm: RmsNorm<(Heads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Affine<Hidden, (Heads, HeadDim)>,
    rope: Rope<HeadDim>,
    #[sharded(cp = "ring")]
    core: Attention<Heads, Heads, HeadDim>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Affine<(Heads, HeadDim), Hidden>,
    dropout: Dropout,
}

#[forward]
impl NormedAttention {
    fn forward(&self, x: &Stream) -> Stream {
        let q = self.rope.forward(&self.q_norm.forward(&self.q.forward(x)));
        let k = self.rope.forward(&self.k_norm.forward(&self.k.forward(x)));
        let attended = self.core.forward(&(q, k, self.v.forward(x)));
        self.dropout.forward(&self.o.forward(&attended))
    }
}

/// A layer of the stack.
#[model]
pub struct Block {
    attn_norm: RmsNorm<Hidden>,
    #[recompute(save = [q, core])]
    attn: NormedAttention,
    mlp_norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    #[init(normal(0.15))]
    up: Affine<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
    mix: Affine<Hidden, Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        let x = x + self.attn.forward(&self.attn_norm.forward(x));
        let y = self.mlp_norm.forward(&x);
        x + self.down.forward(&self.up.forward(&y).gelu()) + self.mix.forward(&y)
    }
}

/// The model.
#[model]
pub struct Tailored {
    #[pipeline_stage]
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage]
    blocks: Stack<Block>,
    #[pipeline_stage]
    norm: RmsNorm<Hidden>,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Tailored {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl Tailored {
    /// Adapters of layers in every style, beside trained norms of the queries.
    pub fn lora() -> LoraOptions {
        LoraOptions {
            rank: 3,
            alpha: 6.0,
            targets: ["attn.q", "v", "o", "up", "down", "mix"].map(str::to_owned).into(),
            train: vec!["q_norm".to_owned()],
        }
    }
}

impl LanguageModel for Tailored {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = Gpt2Config;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &Gpt2Config) -> Sizes {
        let mut sizes = Sizes::new()
            .with(Hidden, config.hidden)
            .with(Ffn, config.ffn)
            .with(Heads, config.heads)
            .with(HeadDim, config.head_dim())
            .with(Vocab, config.vocab)
            .with(Layers, config.layers)
            .with_optional("bias", true)
            .with_optional("attn.k.bias", false)
            .with_norm("q_norm", NormOptions { eps: 1e-3, offset: 0.0 })
            .with_dropout("attn.dropout", 0.2);
        sizes.norm_offset = 1.0;
        sizes.ropes = vec![Some(RopeParameters::with_theta(100.0)), None];
        sizes.init_std = 0.2;
        sizes
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

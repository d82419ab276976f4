//! A model similar to GPT-2: LayerNorm, learned positions, biases, GELU, dropout, a tied head.

use meshwright::checkpoint::hf::Gpt2Config;
use meshwright::prelude::*;

dims! {
    /// Sequences of the global batch.
    Batch @ data,
    /// Positions.
    Seq,
    /// Residual stream.
    Hidden,
    /// Hidden layer of the MLP.
    Ffn,
    /// Heads.
    Heads,
    /// Elements of one head.
    HeadDim,
    /// Token ids.
    Vocab,
}

/// The residual stream.
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
    dropout: Dropout,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Stream) -> Stream {
        let inside = self.up_bias.forward(&self.up.forward(x)).gelu_tanh();
        self.dropout.forward(&self.down_bias.forward(&self.down.forward(&inside)))
    }
}

/// Multi-head attention with biases, over pairs of dims and over one. Keys have no bias: softmax is invariant to it, so
/// its gradient would be rounding noise.
#[model]
pub struct SelfAttention {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    q_bias: Bias<(Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    v_bias: Bias<(Heads, HeadDim)>,
    core: Attention<Heads, Heads, HeadDim>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, HeadDim), Hidden>,
    o_bias: Bias<Hidden>,
    dropout: Dropout,
}

#[forward]
impl SelfAttention {
    fn forward(&self, x: &Stream) -> Stream {
        let q = self.q_bias.forward(&self.q.forward(x));
        let k = self.k.forward(x);
        let v = self.v_bias.forward(&self.v.forward(x));
        let y = self.o.forward(&self.core.forward(&(q, k, v)));
        self.dropout.forward(&self.o_bias.forward(&y))
    }
}

/// Transformer block.
#[model]
pub struct Block {
    attn_norm: LayerNorm<Hidden>,
    attn: SelfAttention,
    mlp_norm: LayerNorm<Hidden>,
    mlp: Mlp,
}

#[forward]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        let x = x + self.attn.forward(&self.attn_norm.forward(x));
        &x + self.mlp.forward(&self.mlp_norm.forward(&x))
    }
}

/// The model.
#[model]
pub struct Gpt {
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    /// Split like the stream to which it is added.
    positions: Param<(Split<Seq, Tp>, Hidden)>,
    dropout: Dropout,
    blocks: Stack<Block>,
    norm: LayerNorm<Hidden>,
    #[sharded(tp = "vocab")]
    #[tied(embed)]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Gpt {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream {
        let x = self.dropout.forward(&(self.embed.forward(tokens) + &self.positions));
        self.norm.forward(&self.blocks.forward(&x))
    }
}

impl LanguageModel for Gpt {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = Gpt2Config;

    // Without key biases, the model has no Hugging Face representation.
    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &Gpt2Config) -> Sizes {
        Sizes::new()
            .with(Seq, config.positions)
            .with(Hidden, config.hidden)
            .with(Ffn, config.ffn)
            .with(Heads, config.heads)
            .with(HeadDim, config.head_dim())
            .with(Vocab, config.vocab)
            .with(Layers, config.layers)
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

//! A decoder whose feed-forward has no gate, with grouped queries.

use meshwright::models::llama::{
    Batch, Ffn, HeadDim, Heads, Hidden, KvHeads, Llama, LlamaConfig, Seq, Stream, Vocab,
};
use meshwright::prelude::*;

#[model]
struct Mlp {
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
    fn forward(&self, x: &Stream) -> Stream {
        let inside = self.up_bias.forward(&self.up.forward(x)).gelu_tanh();
        self.down_bias.forward(&self.down.forward(&inside))
    }
}

#[model]
struct SelfAttention {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(cp = "ring")]
    core: Attention<Heads, KvHeads, HeadDim>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, HeadDim), Hidden>,
    o_bias: Bias<Hidden>,
}

#[forward]
impl SelfAttention {
    fn forward(&self, x: &Stream) -> Stream {
        let (q, k, v) = (self.q.forward(x), self.k.forward(x), self.v.forward(x));
        self.o_bias.forward(&self.o.forward(&self.core.forward(&(q, k, v))))
    }
}

#[model]
struct Block {
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

/// A decoder with LayerNorm, biases and GELU. Positions take no time, and are left out.
#[model]
pub struct PlainDecoder {
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
impl PlainDecoder {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for PlainDecoder {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = LlamaConfig;

    fn hf_names(config: &LlamaConfig) -> Vec<HfName> {
        config.hf_names()
    }

    fn sizes(config: &LlamaConfig) -> Sizes {
        Llama::sizes(config)
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

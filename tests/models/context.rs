//! A language model over a distributed sequence; everything in it depends on positions: context-parallel attention with
//! split and with whole keys, rotary and learned positions, documents, and dropout.

use meshwright::checkpoint::hf::LlamaConfig;
use meshwright::prelude::*;

dims! {
    /// Sequences of the global batch.
    Batch @ data,
    /// Positions, distributed over the ranks of `cp`.
    Seq @ cp,
    /// Rows of the table of positions.
    Positions,
    /// Residual stream.
    Hidden,
    /// Hidden layer of the feed-forward.
    Ffn,
    /// Query heads.
    Heads,
    /// Key-value heads that are split like the query heads.
    KvHeads,
    /// Key-value heads that every rank has.
    SharedHeads,
    /// Elements of one head of queries and keys.
    HeadDim,
    /// Elements of one head of values.
    ValueDim,
    /// Token ids.
    Vocab,
}

/// The residual stream.
pub type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// Attention with a norm of the keys, and values of another width.
#[model]
pub struct GroupedAttention {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (KvHeads, ValueDim)>,
    k_norm: RmsNorm<HeadDim>,
    rope: Rope<HeadDim>,
    #[sharded(cp = "ring")]
    core: Attention<Heads, KvHeads, HeadDim, Causal, ValueDim>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, ValueDim), Hidden>,
}

impl GroupedAttention {
    fn attend(&self, x: &Stream) -> Stream {
        let q = self.rope.forward(&self.q.forward(x));
        let k = self.rope.forward(&self.k_norm.forward(&self.k.forward(x)));
        let v = self.v.forward(x);
        self.o.forward(&self.core.forward(&(q, k, v)))
    }
}

/// Attention within whole rows, whose keys and values are computed from a rank's tokens and gathered.
#[model]
pub struct SharedAttention {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    k: Linear<Hidden, (SharedHeads, HeadDim)>,
    v: Linear<Hidden, (SharedHeads, HeadDim)>,
    #[sharded(cp = "gather")]
    core: Attention<Heads, SharedHeads, HeadDim>,
    dropout: Dropout,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, HeadDim), Hidden>,
}

impl SharedAttention {
    fn attend(&self, x: &Stream) -> Stream {
        let (k, v) = (self.k.forward(x).gather(Seq), self.v.forward(x).gather(Seq));
        let heads = self.core.ignoring_documents().forward(&(self.q.forward(x), k, v));
        self.o.forward(&self.dropout.forward(&heads))
    }
}

/// Both attentions and a feed-forward.
#[model]
pub struct Block {
    positions: LearnedPositions<Positions, Hidden>,
    grouped_norm: RmsNorm<Hidden>,
    grouped: GroupedAttention,
    shared_norm: RmsNorm<Hidden>,
    shared: SharedAttention,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
    dropout: Dropout,
}

#[forward]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        let x = self.positions.forward(x);
        let x = &x + self.grouped.attend(&self.grouped_norm.forward(&x));
        let x = &x + self.shared.attend(&self.shared_norm.forward(&x));
        let y = self.down.forward(&self.up.forward(&x).silu());
        &x + self.dropout.forward(&y)
    }
}

/// Embeds tokens.
#[model]
pub struct Start {
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
}

#[forward]
impl Start {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream {
        self.embed.forward(tokens)
    }
}

/// Normalizes the stream.
#[model]
pub struct End {
    norm: RmsNorm<Hidden>,
}

#[forward]
impl End {
    fn forward(&self, x: &Stream) -> Stream {
        self.norm.forward(x)
    }
}

/// The model, whose layers save their attention when they are recomputed.
#[model]
pub struct ContextLm {
    #[pipeline_stage]
    start: Start,
    #[pipeline_stage]
    #[recompute(save = [grouped.core, shared.core])]
    blocks: Stack<Block>,
    #[pipeline_stage]
    end: End,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    #[tied(start.embed, when = "tie_word_embeddings")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl ContextLm {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for ContextLm {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = LlamaConfig;

    const HF_NAMES: &'static [HfName] = &[];

    /// The values of the first attention are wider than its keys, and the second one has half as many key-value heads.
    fn sizes(config: &LlamaConfig) -> Sizes {
        Sizes::new()
            .with(Positions, config.max_positions)
            .with(Hidden, config.hidden)
            .with(Ffn, config.ffn)
            .with(Heads, config.heads)
            .with(KvHeads, config.kv_heads)
            .with(SharedHeads, config.kv_heads / 2)
            .with(HeadDim, config.head_dim)
            .with(ValueDim, config.head_dim + 2)
            .with(Vocab, config.vocab)
            .with(Layers, config.layers)
            .with_flag("tie_word_embeddings", config.tied)
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

//! A language model of T5's attention over a distributed sequence: it encodes positions by learned biases only, which
//! two attentions share.

use meshwright::checkpoint::hf::LlamaConfig;
use meshwright::prelude::*;

dims! {
    /// Sequences of the global batch.
    Batch @ data,
    /// Positions, distributed over the ranks of `cp`.
    Seq @ cp,
    /// Residual stream.
    Hidden,
    /// Hidden layer of the feed-forward.
    Ffn,
    /// Query heads.
    Heads,
    /// Key-value heads.
    KvHeads,
    /// Elements of one head.
    HeadDim,
    /// Buckets of relative positions.
    Buckets,
    /// Token ids.
    Vocab,
}

/// The residual stream.
pub type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// Bidirectional attention within documents, and causal attention within whole rows, and a feed-forward.
#[model]
pub struct Block {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (KvHeads, HeadDim)>,
    /// Shared by both attentions.
    #[sharded(tp = "col")]
    bias: RelativeBias<Buckets, Heads>,
    /// Shared by both attentions.
    #[sharded(tp = "col")]
    sinks: AttentionSinks<Heads>,
    #[sharded(cp = "ring")]
    encoder: Attention<Heads, KvHeads, HeadDim, Bidirectional>,
    #[sharded(cp = "ulysses")]
    decoder: Attention<Heads, KvHeads, HeadDim>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, HeadDim), Hidden>,
    ffn_norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        let y = self.norm.forward(x);
        let (q, k, v) = (self.q.forward(&y), self.k.forward(&y), self.v.forward(&y));
        let operands = (q, k, v, (&self.bias, &self.sinks));
        let within = self.encoder.forward(&operands);
        let whole = self.decoder.ignoring_documents().forward(&operands);
        let x = x + self.o.forward(&(within + whole));
        let y = self.up.forward(&self.ffn_norm.forward(&x)).silu();
        &x + self.down.forward(&y)
    }
}

/// The model, whose layers save their attentions when they are recomputed.
#[model]
pub struct EncoderLm {
    #[pipeline_stage]
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage]
    #[recompute(save = [encoder, decoder])]
    blocks: Stack<Block>,
    #[pipeline_stage]
    norm: RmsNorm<Hidden>,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    #[tied(embed, when = "tie_word_embeddings")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl EncoderLm {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for EncoderLm {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = LlamaConfig;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &LlamaConfig) -> Sizes {
        let mut sizes = Sizes::new()
            .with(Hidden, config.hidden)
            .with(Ffn, config.ffn)
            .with(Heads, config.heads)
            .with(KvHeads, config.kv_heads)
            .with(HeadDim, config.head_dim)
            .with(Buckets, 8)
            .with(Vocab, config.vocab)
            .with(Layers, config.layers)
            .with_flag("tie_word_embeddings", config.tied);
        // Some pairs are farther apart.
        sizes.attention.max_distance = 9;
        sizes
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

//! Attention of every kind, each in a model with one use of it.

use meshwright::prelude::*;

dims! {
    /// Samples of the global batch.
    Batch @ data,
    /// Positions.
    Seq,
    /// Positions of the sequence that cross attention reads.
    Memory,
    /// Residual stream.
    Hidden,
    /// Query heads.
    Heads,
    /// Key-value heads.
    KvHeads,
    /// Elements of one head of queries and keys.
    HeadDim,
    /// Elements of one head of values.
    ValueDim,
    /// Buckets of relative positions.
    Buckets,
}

/// A stream that is whole on every rank.
pub type Stream = Tensor<(Batch, Seq, Hidden)>;

/// A sequence-parallel stream.
pub type SplitStream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// Causal attention with norms of queries and keys, sinks, and values of another width, in a sequence-parallel stream.
#[model]
pub struct Latent {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (KvHeads, ValueDim)>,
    q_norm: RmsNorm<HeadDim>,
    k_norm: RmsNorm<HeadDim>,
    core: Attention<Heads, KvHeads, HeadDim, Causal, ValueDim>,
    #[sharded(tp = "col")]
    sinks: AttentionSinks<Heads>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, ValueDim), Hidden>,
}

#[forward]
impl Latent {
    fn forward(&self, x: &SplitStream) -> SplitStream {
        let q = self.q_norm.forward(&self.q.forward(x));
        let k = self.k_norm.forward(&self.k.forward(x));
        let v = self.v.forward(x);
        x + self.o.forward(&self.core.forward(&(q, k, v, &self.sinks)))
    }
}

/// Layers of [`Latent`], for windows by layer.
#[model]
pub struct Decoder {
    blocks: Stack<Latent>,
}

#[forward]
impl Decoder {
    fn forward(&self, x: &SplitStream) -> SplitStream {
        self.blocks.forward(x)
    }
}

/// Bidirectional attention with a learned bias of positions, padding and sinks.
#[model]
pub struct Encoder {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (KvHeads, HeadDim)>,
    core: Attention<Heads, KvHeads, HeadDim, Bidirectional>,
    #[sharded(tp = "col")]
    bias: RelativeBias<Buckets, Heads>,
    #[sharded(tp = "col")]
    sinks: AttentionSinks<Heads>,
    #[sharded(tp = "row")]
    o: Linear<(Heads, HeadDim), Hidden>,
}

impl Encoder {
    /// Applies the attention twice, with the same bias.
    pub fn forward(&self, x: &Stream, padding: &Padding<(Batch, Seq)>) -> Stream {
        let attend = |x: &Stream| {
            let (q, k, v) = (self.q.forward(x), self.k.forward(x), self.v.forward(x));
            self.o.forward(&self.core.forward(&(q, k, v, (padding, &self.bias, &self.sinks))))
        };
        let x = x + attend(x);
        &x + attend(&x)
    }
}

/// Causal attention within the documents of packed rows, with a learned bias of positions and sinks.
#[model]
pub struct Packed {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (KvHeads, HeadDim)>,
    core: Attention<Heads, KvHeads, HeadDim>,
    #[sharded(tp = "col")]
    bias: RelativeBias<Buckets, Heads>,
    #[sharded(tp = "col")]
    sinks: AttentionSinks<Heads>,
    #[sharded(tp = "row")]
    o: Linear<(Heads, HeadDim), Hidden>,
}

impl Packed {
    /// Applies attention within `documents`, and then within all of each row.
    pub fn forward(&self, x: &Stream, documents: &Documents<(Batch, Seq)>) -> Stream {
        let (q, k, v) = (self.q.forward(x), self.k.forward(x), self.v.forward(x));
        let within = self.core.forward(&(
            q.clone(),
            k.clone(),
            v.clone(),
            (documents, &self.bias, &self.sinks),
        ));
        let all = self.core.forward(&(q, k, v));
        x + self.o.forward(&(within + all))
    }
}

/// Causal attention with linear biases, and the sinks and bias of heads that are not split.
#[model]
pub struct Biased {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (KvHeads, HeadDim)>,
    core: Attention<Heads, KvHeads, HeadDim>,
    alibi: Alibi<Heads>,
    #[sharded(tp = "row")]
    o: Linear<(Heads, HeadDim), Hidden>,
    whole: WholeHeads,
}

impl Biased {
    /// Computes the sum of split and whole heads.
    pub fn forward(&self, x: &Stream) -> Stream {
        let (q, k, v) = (self.q.forward(x), self.k.forward(x), self.v.forward(x));
        let split = self.o.forward(&self.core.forward(&(q, k, v, &self.alibi)));
        split + self.whole.forward(x)
    }
}

/// Causal attention without sharding, with a learned bias of positions and sinks.
#[model]
pub struct WholeHeads {
    qkv: Linear<Hidden, (Heads, HeadDim)>,
    core: Attention<Heads, Heads, HeadDim>,
    bias: RelativeBias<Buckets, Heads>,
    sinks: AttentionSinks<Heads>,
    o: Linear<(Heads, HeadDim), Hidden>,
}

impl WholeHeads {
    fn forward(&self, x: &Stream) -> Stream {
        let qkv = self.qkv.forward(x);
        let operands = (qkv.clone(), qkv.clone(), qkv, (&self.bias, &self.sinks));
        self.o.forward(&self.core.forward(&operands))
    }
}

/// Attention whose query heads are split, and whose key-value heads are whole on every rank, with norms of both.
#[model]
pub struct SharedKeys {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    k: Linear<Hidden, (KvHeads, HeadDim)>,
    v: Linear<Hidden, (KvHeads, HeadDim)>,
    q_norm: RmsNorm<HeadDim>,
    k_norm: RmsNorm<HeadDim>,
    core: Attention<Heads, KvHeads, HeadDim>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, HeadDim), Hidden>,
    second: PlainSharedKeys,
}

impl SharedKeys {
    /// Keys and values are computed from this rank's positions and gathered; in the second attention from all
    /// positions.
    pub fn forward(&self, x: &SplitStream) -> SplitStream {
        let q = self.q_norm.forward(&self.q.forward(x));
        let k = self.k_norm.forward(&self.k.forward(x)).gather(Seq);
        let v = self.v.forward(x).gather(Seq);
        let x = x + self.o.forward(&self.core.forward(&(q, k, v)));
        let whole = x.gather(Seq);
        &x + self.second.forward(&whole).slice(Seq, Tp)
    }
}

/// The same with a stream that is whole on every rank, and keys that are the values too.
#[model]
pub struct PlainSharedKeys {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    kv: Linear<Hidden, (KvHeads, HeadDim)>,
    core: Attention<Heads, KvHeads, HeadDim, Bidirectional>,
    #[sharded(tp = "row")]
    o: Linear<(Heads, HeadDim), Hidden>,
}

impl PlainSharedKeys {
    fn forward(&self, x: &Stream) -> Stream {
        let (q, kv) = (self.q.forward(x), self.kv.forward(x));
        self.o.forward(&self.core.forward(&(q, kv.clone(), kv)))
    }
}

/// Cross attention to a memory with padding and another length, with sinks.
#[model]
pub struct Cross {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (KvHeads, HeadDim)>,
    core: Attention<Heads, KvHeads, HeadDim, Bidirectional>,
    #[sharded(tp = "col")]
    sinks: AttentionSinks<Heads>,
    #[sharded(tp = "row")]
    o: Linear<(Heads, HeadDim), Hidden>,
}

impl Cross {
    /// Reads `memory`; `padding` holds its valid positions.
    pub fn forward(
        &self,
        x: &Stream,
        memory: &Tensor<(Batch, Memory, Hidden)>,
        padding: Padding<(Batch, Memory)>,
    ) -> Stream {
        let (q, k, v) = (self.q.forward(x), self.k.forward(memory), self.v.forward(memory));
        x + self.o.forward(&self.core.forward(&(q, k, v, (padding, &self.sinks))))
    }
}

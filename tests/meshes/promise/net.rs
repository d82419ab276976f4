//! A model with a layer of each kind of sharding, and its data.

use meshwright::layout::AxisSet;
use meshwright::prelude::*;
use meshwright::random;

dims! {
    /// Sequences of the global batch.
    pub Batch @ data,
    /// Positions.
    pub Seq,
    /// Residual stream.
    pub Hidden,
    /// Hidden layer of a feed-forward.
    pub Ffn,
    /// Heads.
    pub Heads,
    /// Heads of keys and values.
    pub KvHeads,
    /// Elements of one head.
    pub HeadDim,
    /// Token ids.
    pub Vocab,
}

pub const VOCAB: usize = 11;

pub type Stream = Tensor<(Batch, Seq, Hidden)>;
pub type Ids = Tokens<(Batch, Seq)>;

#[model]
pub struct Net {
    pub embed: Embedding<Vocab, Hidden>,
    pub norm: RmsNorm<Hidden>,
    pub layer_norm: LayerNorm<Hidden>,
    pub plain: Linear<Hidden, Hidden>,
    pub bias: Bias<Hidden>,
    #[sharded(tp = "col")]
    pub up: Linear<Hidden, Ffn>,
    #[sharded(tp = "col")]
    pub up_bias: Bias<Ffn>,
    #[sharded(tp = "row")]
    pub down: Linear<Ffn, Hidden>,
    #[sharded(tp = "row", scatter = Seq)]
    pub down_seq: Linear<Ffn, Hidden>,
    #[sharded(tp = "row", scatter = Batch)]
    pub down_batch: Linear<Ffn, Hidden>,
    #[sharded(tp = "row")]
    pub down_own: Param<(Ffn, Hidden)>,
    pub gain: Param<(Hidden,)>,
    pub own: Param<(Hidden, Hidden)>,
    pub dropout: Dropout,
    #[sharded(tp = "col")]
    pub q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    pub k: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    pub v: Linear<Hidden, (KvHeads, HeadDim)>,
    pub rope: Rope<HeadDim>,
    pub attention: Attention<Heads, KvHeads, HeadDim>,
    #[sharded(tp = "row")]
    pub o: Linear<(Heads, HeadDim), Hidden>,
    #[sharded(tp = "vocab")]
    pub head: LmHead<Hidden, Vocab>,
    pub plain_head: LmHead<Hidden, Vocab>,
    #[sharded(tp = "vocab")]
    pub entropy: CrossEntropy<Vocab>,
    #[recompute]
    pub blocks: Stack<Block>,
}

#[model]
pub struct Block {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    dropout: Dropout,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        let inner = self.up.forward(&self.norm.forward(x)).silu();
        x + self.down.forward(&self.dropout.forward(&inner))
    }
}

pub fn sizes() -> Sizes {
    let mut sizes = Sizes::new()
        .with(Hidden, 8)
        .with(Ffn, 12)
        .with(Heads, 4)
        .with(KvHeads, 2)
        .with(HeadDim, 4)
        .with(Vocab, VOCAB)
        .with(Layers, 2);
    sizes.init_std = 0.4;
    sizes
}

/// Token ids of one micro-batch.
pub struct Batched {
    pub tokens: Ids,
    pub targets: Ids,
    /// Number of targets on this rank that are not ignored.
    pub counted: u64,
    pub index: usize,
}

/// Micro-batch `index` of `count` of a batch of `batch` sequences of `seq` tokens.
///
/// With `alike`, micro-batches hold the same sequences on every mesh; otherwise a sequence keeps its index in the
/// batch, and its micro-batch depends on the number of data ranks.
pub fn micro_batch(
    rank: &Rank,
    (batch, seq): (usize, usize),
    (index, count): (usize, usize),
    alike: bool,
) -> Batched {
    let (at, ranks) = (rank.position(AxisSet::DATA), rank.degree_of(AxisSet::DATA));
    let (start, end) = (at * batch / ranks, (at + 1) * batch / ranks);
    let own = end - start;
    let (first, last) = (index * own / count, (index + 1) * own / count);
    let content = |row: usize| {
        if alike {
            index * (batch / count) + at * (own / count) + (row - first)
        } else {
            start + row
        }
    };
    let token = |row: usize, position: usize, name: &str| {
        let key = random::subkey(random::key(3, name), (content(row) * 100 + position) as u64);
        (key % VOCAB as u64) as u32
    };
    let ids = |name: &str| -> Vec<u32> {
        let rows = first..last;
        rows.flat_map(|row| (0..seq).map(move |position| (row, position)))
            .map(|(row, position)| token(row, position, name))
            .collect()
    };
    let targets: Vec<u32> = ids("targets")
        .into_iter()
        .map(|id| if id == 0 { Targets::<(Batch, Seq)>::IGNORED } else { id })
        .collect();
    let sizes = [batch, seq];
    Batched {
        tokens: Tokens::from_rows(rank, &sizes, first, &ids("tokens")),
        targets: Tokens::from_rows(rank, &sizes, first, &targets),
        counted: targets.iter().filter(|id| **id != Targets::<(Batch, Seq)>::IGNORED).count()
            as u64,
        index,
    }
}

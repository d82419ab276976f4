//! A language model whose layers are written with operations only: attention by hand within documents, linear
//! attention, modulation by a pooled vector, slots of a soft mixture of experts, groups of features, and chosen tokens.

use meshwright::checkpoint::hf::Gpt2Config;
use meshwright::prelude::*;

dims! {
    /// Sequences of the global batch.
    pub Batch @ data,
    /// Positions.
    pub Seq,
    /// Residual stream.
    pub Hidden,
    /// Hidden layer of the networks.
    pub Ffn,
    /// Token ids.
    pub Vocab,
    /// Heads of attention.
    pub Heads,
    /// Elements of a head.
    pub HeadDim,
    /// Positions of keys.
    pub Keys,
    /// Elements of a head that queries and keys compare.
    pub KeyDim,
    /// Queries, keys and values of a head.
    pub Qkv,
    /// Values of a head.
    pub ValueDim,
    /// Scale, shift and gate.
    pub Three,
    /// Slots of the experts.
    pub Slots,
    /// Groups of features.
    pub Groups,
    /// Features of a group.
    pub Inner,
    /// Chosen tokens.
    pub Kept,
}

/// The residual stream.
pub type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// Attention within documents, with a soft cap, a temperature and a sink for each head.
#[model]
pub struct ByHand {
    norm: LayerNorm<Hidden>,
    #[sharded(tp = "col")]
    qkv: Linear<Hidden, (Heads, Qkv)>,
    #[sharded(tp = "col")]
    temperature: Param<(Heads,)>,
    #[sharded(tp = "col")]
    sink: Param<(Heads,)>,
    #[sharded(tp = "row", scatter = Seq)]
    out: Linear<(Heads, ValueDim), Hidden>,
}

#[forward]
impl ByHand {
    fn forward(&self, x: &Stream) -> Stream {
        let qkv = self.qkv.forward(&self.norm.forward(x));
        let (q, k, v) = qkv.cut(Qkv, (HeadDim, KeyDim, ValueDim), [2, 2]);
        let k = k.rename(KeyDim, HeadDim).rename(Seq, Keys);
        let q = &q / q.norm(HeadDim).maximum(1e-3);
        let k = &k / k.norm(HeadDim).maximum(1e-3);
        let scores = q.dot(&k, HeadDim, (Batch, Heads)) * self.temperature.tensor().exp();
        let visible = Mask::causal(Seq, Keys) & Mask::documents(Seq, Keys);
        let scores = ((scores / 5.0).tanh() * 5.0).masked(&visible, f32::NEG_INFINITY);
        let of_keys = scores.log_sum_exp(Keys);
        let sink = &of_keys * 0.0 + self.sink.tensor();
        let high = of_keys.maximum(&sink);
        let total = (of_keys - &high).exp() + (sink - &high).exp();
        let weights = (scores - high).exp() / total;
        let mixed = weights.dot(&v.rename(Seq, Keys), Keys, (Batch, Heads));
        x + self.out.forward(&mixed.permute((Batch, Seq, Heads, ValueDim)))
    }
}

/// Causal linear attention by running sums of outer products, and a scale for each element of a head.
#[model]
pub struct LinearAttention {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, KeyDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (Heads, KeyDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    scale: Param<((Heads, HeadDim),)>,
    #[sharded(tp = "row", scatter = Seq)]
    out: Linear<(Heads, HeadDim), Hidden>,
}

#[forward]
impl LinearAttention {
    fn forward(&self, x: &Stream) -> Stream {
        let (q, k) = (self.q.forward(x).softplus(), self.k.forward(x).softplus());
        let outer = k.expand(HeadDim, 2) * self.v.forward(x);
        let mixed = (q.expand(HeadDim, 2) * outer.cumsum(Seq)).sum(KeyDim);
        let total = (&q * k.cumsum(Seq)).sum(KeyDim);
        x + self.out.forward(&(mixed / total * &self.scale))
    }
}

/// A network whose input is scaled, shifted and gated by what the positions have in common.
#[model]
pub struct Modulated {
    norm: RmsNorm<Hidden>,
    #[init(normal(0.2))]
    modulation: Linear<Hidden, (Three, Hidden)>,
    query: Param<(Hidden,)>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Modulated {
    fn forward(&self, x: &Stream) -> Stream {
        let scores = (x * &self.query).sum(Hidden);
        let weights = scores.across().softmax_over(Seq);
        let chosen = x.across().mean_where(Seq, &scores.gt(0.0));
        let pooled = (x * weights).sum(Seq).all_reduce() + chosen;
        let three = self.modulation.forward(&pooled.silu());
        let y = self.norm.forward(x) * (1.0 + three.select(Three, 0)) + three.select(Three, 1);
        x + self.down.forward(&self.up.forward(&y).gelu()) * three.select(Three, 2)
    }
}

/// A soft mixture of experts with one network (Puigcerver et al., 2023).
#[model]
pub struct SoftExperts {
    slots: Param<(Slots, Hidden)>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl SoftExperts {
    fn forward(&self, x: &Stream) -> Stream {
        let scores = x.dot(&self.slots.tensor(), Hidden, ());
        let slots = scores.across().softmax_over(Seq).dot(x, Seq, (Batch,)).all_reduce();
        let y = self.down.forward(&self.up.forward(&slots).gelu());
        x + scores.softmax().dot(&y, Slots, (Batch,))
    }
}

/// Groups of features, normalized over the whole sequence, and the position before.
#[model]
pub struct Grouped {
    shift: Param<(Groups,)>,
    mix: Param<(Hidden,)>,
    layer: Linear<Hidden, Hidden>,
}

#[forward]
impl Grouped {
    fn forward(&self, x: &Stream) -> Stream {
        let y = x + (x.shift_in_documents(Seq, 1) - x) * &self.mix;
        let groups = y.part(Hidden, (Groups, Inner), 2);
        let centered = &groups - groups.mean((Seq, Inner)).all_reduce();
        let var = centered.square().mean((Seq, Inner)).all_reduce();
        let y = centered / (var + 1e-5).sqrt() + self.shift.tensor();
        x + self.layer.forward(&y.join((Groups, Inner), Hidden))
    }
}

/// The tokens with the highest scores are refined, and added to their places.
#[model]
pub struct Refined {
    score: Param<(Hidden,)>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Refined {
    fn forward(&self, x: &Stream) -> Stream {
        let whole = x.gather(Seq);
        let (best, index) = (&whole * &self.score).sum(Hidden).top_k(Seq, 3, Kept);
        let kept = whole.take(&index, (Batch,));
        let refined = self.down.forward(&self.up.forward(&kept).gelu()) * best.sigmoid();
        x + refined.scatter_add(&index, Kept, (Batch,)).slice(Seq, Tp)
    }
}

/// A layer.
#[model]
pub enum Block {
    /// Attention within documents.
    ByHand(ByHand),
    /// Linear attention.
    LinearAttention(LinearAttention),
    /// A modulated network.
    Modulated(Modulated),
    /// A soft mixture of experts.
    SoftExperts(SoftExperts),
    /// Groups of features.
    Grouped(Grouped),
    /// Refined tokens.
    Refined(Refined),
}

/// The model.
#[model]
pub struct Variety {
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
impl Variety {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for Variety {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = Gpt2Config;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &Gpt2Config) -> Sizes {
        let kinds = ["ByHand", "LinearAttention", "Modulated", "SoftExperts", "Grouped", "Refined"];
        let mut sizes = Sizes::new()
            .with(Hidden, config.hidden)
            .with(Ffn, config.ffn)
            .with(Vocab, config.vocab)
            .with(Layers, config.layers)
            .with(Heads, 4)
            .with(HeadDim, 2)
            .with(KeyDim, 2)
            .with(ValueDim, 3)
            .with(Qkv, 7)
            .with(Three, 3)
            .with(Slots, 4)
            .with(Groups, config.hidden / 2)
            .with_kinds("blocks", kinds);
        sizes.init_std = 0.3;
        sizes
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

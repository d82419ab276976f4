//! A Mixtral: a Llama whose feed-forward is a mixture of experts, which are split over all ranks that have different
//! tokens, along `ep`, `cp` and `tp`.

use meshwright::prelude::*;

use super::{HF_NAMES, MixtralConfig};

dims! {
    /// Sequences of the global batch, distributed over the data axes.
    Batch @ data,
    /// Positions, distributed over the ranks of `cp`.
    Seq @ cp,
    /// Residual stream.
    Hidden,
    /// Hidden layer of each expert.
    Ffn,
    /// Query heads.
    Heads,
    /// Key-value heads, each shared by `Heads / KvHeads` query heads.
    KvHeads,
    /// Elements of one head.
    HeadDim,
    /// Experts of each block.
    Experts,
    /// Experts that a token chooses.
    TopK,
    /// Token ids.
    Vocab,
}

/// The residual stream, which is sequence-parallel outside of tensor-parallel regions.
pub type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// The tokens at the experts that they have chosen.
pub type ExpertTokens =
    Tensor<(Routed<(Batch, Split<Seq, Tp>), Split<Experts, (Ep, Cp, Tp)>>, Hidden)>;

/// The SwiGLU MLPs of the experts.
#[model]
pub struct ExpertMlps {
    #[sharded(ep = "experts", fold = [cp, tp])]
    gate: GroupedLinear<Experts, Hidden, Ffn>,
    #[sharded(ep = "experts", fold = [cp, tp])]
    up: GroupedLinear<Experts, Hidden, Ffn>,
    #[sharded(ep = "experts", fold = [cp, tp])]
    down: GroupedLinear<Experts, Ffn, Hidden>,
}

#[forward]
impl ExpertMlps {
    /// Returns the outputs of the experts.
    pub fn forward(&self, x: &ExpertTokens) -> ExpertTokens {
        self.down.forward(&(self.gate.forward(x).silu() * self.up.forward(x)))
    }
}

/// Mixture of experts.
#[model]
pub struct Mixture {
    router: Router<Hidden, Experts, TopK>,
    experts: ExpertMlps,
}

#[forward]
impl Mixture {
    /// Returns the stream that the mixture adds, with the auxiliary loss of its router.
    pub fn forward(&self, x: &Stream) -> Stream {
        let routing = self.router.forward(x);
        let rows = routing.dispatch(x, (Ep, Cp, Tp));
        let mixed = routing.combine(&self.experts.forward(&rows));
        mixed.with_auxiliary_loss(&routing.auxiliary_loss())
    }
}

/// Grouped-query attention with rotary position embedding.
#[model]
pub struct SelfAttention {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (KvHeads, HeadDim)>,
    rope: Rope<HeadDim>,
    /// The attention itself, without projections.
    #[sharded(cp = "ring")]
    pub core: Attention<Heads, KvHeads, HeadDim>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, HeadDim), Hidden>,
}

#[forward]
impl SelfAttention {
    /// Returns the stream that the attention adds.
    pub fn forward(&self, x: &Stream) -> Stream {
        let q = self.rope.forward(&self.q.forward(x));
        let k = self.rope.forward(&self.k.forward(x));
        let v = self.v.forward(x);
        self.o.forward(&self.core.forward(&(q, k, v)))
    }
}

/// Transformer block.
#[model]
pub struct Block {
    attn_norm: RmsNorm<Hidden>,
    /// The attention, with its projections.
    pub attn: SelfAttention,
    moe_norm: RmsNorm<Hidden>,
    /// The mixture of experts.
    pub moe: Mixture,
}

#[forward]
impl Block {
    /// Returns the stream after the block.
    pub fn forward(&self, x: &Stream) -> Stream {
        let x = x + self.attn.forward(&self.attn_norm.forward(x));
        &x + self.moe.forward(&self.moe_norm.forward(&x))
    }
}

/// The model. Its `forward` runs the pipeline stages in order.
#[model]
pub struct Mixtral {
    #[pipeline_stage]
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage]
    blocks: Stack<Block>,
    #[pipeline_stage]
    norm: RmsNorm<Hidden>,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    #[tied(embed, when = "tie_word_embeddings")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Mixtral {
    /// Returns the stream before the head.
    pub fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for Mixtral {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = MixtralConfig;

    const HF_NAMES: &'static [HfName] = HF_NAMES;

    fn sizes(config: &MixtralConfig) -> Sizes {
        let mut sizes = Sizes::new()
            .with(Hidden, config.hidden)
            .with(Ffn, config.ffn)
            .with(Heads, config.heads)
            .with(KvHeads, config.kv_heads)
            .with(HeadDim, config.head_dim)
            .with(Experts, config.experts)
            .with(TopK, config.top_k)
            .with(Vocab, config.vocab)
            .with(Layers, config.layers)
            .with_flag("tie_word_embeddings", config.tied);
        if let Some(row) = config.padding {
            sizes = sizes.with_padding(Vocab, row);
        }
        sizes.norm_eps = config.norm_eps as f32;
        sizes.rope = config.rope.clone();
        sizes.penalties = RouterPenalties {
            balance: config.router_aux_loss_coef as f32,
            z_loss: config.router_z_loss_coef as f32,
        };
        // The weights of a token are the softmax over the logits of the experts that it has chosen.
        sizes.router =
            RouterOptions { score: RouterScore::Softmax, normalize: true, ..sizes.router };
        sizes
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

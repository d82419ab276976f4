//! Language models with mixtures of experts, whose experts are on every rank, or split over different axes.

use meshwright::checkpoint::hf::Gpt2Config;
use meshwright::prelude::*;

dims! {
    /// Sequences of the global batch.
    pub Batch @ data,
    /// Positions, distributed over the ranks of `cp`.
    pub Seq @ cp,
    /// Residual stream.
    pub Hidden,
    /// Hidden layer of each expert.
    pub Ffn,
    /// Attention heads.
    pub Heads,
    /// Elements of one head.
    pub HeadDim,
    /// Experts.
    pub Experts,
    /// Experts that a token chooses.
    pub TopK,
    /// Token ids.
    pub Vocab,
}

/// The residual stream.
pub type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// Weight of the load-balancing loss.
pub const BALANCE: f32 = 0.05;

/// Weight of the router's z-loss.
pub const Z: f32 = 0.01;

/// Attention with a norm before it.
#[model]
pub struct SelfAttention {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(cp = "ring")]
    core: Attention<Heads, Heads, HeadDim>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, HeadDim), Hidden>,
}

#[forward]
impl SelfAttention {
    fn forward(&self, x: &Stream) -> Stream {
        let x = self.norm.forward(x);
        let (q, k, v) = (self.q.forward(&x), self.k.forward(&x), self.v.forward(&x));
        self.o.forward(&self.core.forward(&(q, k, v)))
    }
}

/// Returns the sizes of the models for a configuration.
pub fn sizes(config: &Gpt2Config) -> Sizes {
    let mut sizes = Sizes::new()
        .with(Hidden, config.hidden)
        .with(Ffn, config.ffn)
        .with(Heads, config.heads)
        .with(HeadDim, config.head_dim())
        .with(Experts, 8)
        .with(TopK, 2)
        .with(Vocab, config.vocab)
        .with(Layers, config.layers);
    sizes.init_std = 0.2;
    sizes
}

/// Declares a model: the sharding of its experts, their rows, and the way to them.
macro_rules! model {
    ($(#[$doc:meta])* $name:ident, $part:ty, |$routing:ident, $x:ident| $rows:expr, $(#[$sharded:meta])?) => {
        $(#[$doc])*
        pub mod $name {
            use super::*;

            /// The rows of the experts of a rank.
            type ExpertTokens = Tensor<(Routed<(Batch, Split<Seq, Tp>), $part>, Hidden)>;

            /// The feed-forward networks of the experts.
            #[model]
            pub struct Networks {
                $(#[$sharded])?
                gate: GroupedLinear<Experts, Hidden, Ffn>,
                $(#[$sharded])?
                up: GroupedLinear<Experts, Hidden, Ffn>,
                $(#[$sharded])?
                down: GroupedLinear<Experts, Ffn, Hidden>,
            }

            #[forward]
            impl Networks {
                fn forward(&self, x: &ExpertTokens) -> ExpertTokens {
                    self.down.forward(&(self.gate.forward(x).silu() * self.up.forward(x)))
                }
            }

            /// A mixture of experts, beside a network that all tokens use.
            #[model]
            pub struct Mixture {
                norm: RmsNorm<Hidden>,
                router: Router<Hidden, Experts, TopK>,
                #[recompute(save = [up])]
                experts: Networks,
                #[sharded(tp = "col")]
                shared_up: Linear<Hidden, Ffn>,
                #[sharded(tp = "row", scatter = Seq)]
                shared_down: Linear<Ffn, Hidden>,
            }

            #[forward]
            impl Mixture {
                fn forward(&self, x: &Stream) -> Stream {
                    let $x = &self.norm.forward(x);
                    let $routing = self.router.forward($x);
                    let rows = $rows;
                    let mixed = $routing.combine(&self.experts.forward(&rows));
                    let shared = self.shared_down.forward(&self.shared_up.forward($x).gelu());
                    let losses = $routing.load_balancing_loss() * BALANCE + $routing.z_loss() * Z;
                    mixed.with_auxiliary_loss(&losses) + shared
                }
            }

            /// A layer of the model.
            #[model]
            pub struct Block {
                attn: SelfAttention,
                moe: Mixture,
            }

            #[forward]
            impl Block {
                fn forward(&self, x: &Stream) -> Stream {
                    let x = x + self.attn.forward(x);
                    &x + self.moe.forward(&x)
                }
            }

            /// The model.
            #[model]
            pub struct Net {
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
            impl Net {
                fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
            }

            impl LanguageModel for Net {
                type Batch = Batch;
                type Seq = Seq;
                type Vocab = Vocab;
                type Config = Gpt2Config;

                const HF_NAMES: &'static [HfName] = &[];

                fn sizes(config: &Gpt2Config) -> Sizes {
                    sizes(config)
                }

                fn loss_of_output(
                    &self,
                    x: &Stream,
                    targets: &Targets<(Batch, Seq)>,
                ) -> Loss<(Batch, Seq)> {
                    self.head.loss(x, targets)
                }

                fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
                    self.head.logits(x).gather(Vocab)
                }
            }
        }
    };
}

model! {
    /// Every rank has all experts.
    whole, Experts, |routing, x| routing.group(x),
}

model! {
    /// The ranks of `ep` have different experts.
    over_ep, Split<Experts, Ep>, |routing, x| routing.dispatch(x, Ep),
    #[sharded(ep = "experts")]
}

model! {
    /// The ranks of `ep` and `tp` have different experts.
    over_ep_tp, Split<Experts, (Ep, Tp)>, |routing, x| routing.dispatch(x, (Ep, Tp)),
    #[sharded(ep = "experts", fold = [tp])]
}

model! {
    /// The ranks of `ep`, `cp` and `tp` have different experts.
    over_ep_cp_tp, Split<Experts, (Ep, Cp, Tp)>, |routing, x| routing.dispatch(x, (Ep, Cp, Tp)),
    #[sharded(ep = "experts", fold = [cp, tp])]
}

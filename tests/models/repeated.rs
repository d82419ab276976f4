//! A language model with optional and repeated fields of every kind: layers, models, parameters, attentions and stacks;
//! sharded, recomputed and nested.

use meshwright::checkpoint::hf::Gpt2Config;
use meshwright::prelude::*;

dims! {
    /// Sequences of the global batch.
    pub Batch @ data,
    /// Positions, distributed over the ranks of `cp`.
    pub Seq @ cp,
    /// Residual stream.
    pub Hidden,
    /// Hidden layer of the towers.
    pub Ffn,
    /// Heads of each attention.
    pub Heads,
    /// Elements of one head.
    pub HeadDim,
    /// Layers of each stack inside of a layer.
    pub Depth,
    /// Token ids.
    pub Vocab,
}

/// The residual stream.
pub type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// A feed-forward network, with a bias in some models.
#[model]
pub struct Tower {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "col")]
    bias: Option<Bias<Ffn>>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
    out_bias: Option<Bias<Hidden>>,
}

#[forward]
impl Tower {
    fn forward(&self, x: &Stream) -> Stream {
        let up = self.bias.forward(&self.up.forward(x));
        self.out_bias.forward(&self.down.forward(&up.gelu()))
    }
}

/// Two attentions over the same stream, with layers of their own.
#[model]
pub struct TwoAttentions {
    #[sharded(tp = "col")]
    q: [Linear<Hidden, (Heads, HeadDim)>; 2],
    #[sharded(tp = "col")]
    k: [Linear<Hidden, (Heads, HeadDim)>; 2],
    #[sharded(tp = "col")]
    v: Vec<Linear<Hidden, (Heads, HeadDim)>>,
    #[sharded(cp = "ring")]
    cores: [Attention<Heads, Heads, HeadDim>; 2],
    #[sharded(tp = "row", scatter = Seq)]
    o: Vec<Linear<(Heads, HeadDim), Hidden>>,
}

#[forward]
impl TwoAttentions {
    fn forward(&self, x: &Stream) -> Stream {
        let attend = |i: usize| {
            let (q, k) = (self.q[i].forward(x), self.k[i].forward(x));
            self.o[i].forward(&self.cores[i].forward(&(q, k, self.v[i].forward(x))))
        };
        attend(0) + attend(1)
    }
}

/// A layer of the stack.
#[model]
pub struct Block {
    norm: Option<RmsNorm<Hidden>>,
    #[recompute(save = [q])]
    attn: Option<TwoAttentions>,
    #[recompute]
    towers: [Tower; 2],
    #[recompute]
    #[sharded(fsdp)]
    more: Vec<Tower>,
    /// One for each of the towers in `more`.
    gains: Vec<Param<(Hidden,)>>,
    absent: Option<Tower>,
    #[recompute(every = 2)]
    deep: Vec<Stack<Tower, Depth>>,
    /// Nested containers.
    shifts: [Option<Vec<Bias<Hidden>>>; 2],
}

#[forward]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        let normed = self.norm.forward(x);
        let mut sum = x.clone();
        if let Some(attn) = &self.attn {
            sum += attn.forward(&normed);
        }
        for tower in self.towers.iter().map(|tower| tower.forward(&normed)) {
            sum += tower;
        }
        for (tower, gain) in self.more.iter().zip(&self.gains) {
            sum += tower.forward(&normed) * gain;
        }
        if let Some(absent) = &self.absent {
            sum += absent.forward(&normed);
        }
        for stack in &self.deep {
            sum += stack.forward(&normed);
        }
        self.shifts.forward(&sum)
    }
}

/// The norm after the layers, in some models.
#[model]
pub struct End {
    norm: Option<RmsNorm<Hidden>>,
}

#[forward]
impl End {
    fn forward(&self, x: &Stream) -> Stream {
        self.norm.forward(x)
    }
}

/// The model.
#[model]
pub struct Repeated {
    #[pipeline_stage]
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage]
    blocks: Stack<Block>,
    #[pipeline_stage]
    end: End,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Repeated {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl Repeated {
    /// Returns sizes with every setting of the fields.
    pub fn all_sizes(vocab: usize) -> Sizes {
        let mut sizes = Sizes::new()
            .with(Hidden, 16)
            .with(Ffn, 24)
            .with(Heads, 8)
            .with(HeadDim, 4)
            .with(Vocab, vocab)
            .with(Layers, 4)
            .with(Depth, 3)
            .with_optional("norm", true)
            .with_optional("attn", true)
            .with_optional("bias", true)
            .with_optional("out_bias", false)
            // Of the towers in `more`, unlike those in `towers`.
            .with_optional("more.out_bias", true)
            .with_optional("absent", false)
            .with_optional("shifts", true)
            .with_count("shifts", 2)
            .with_count("v", 2)
            .with_count("o", 2)
            .with_count("more", 3)
            .with_count("gains", 3)
            .with_count("deep", 2);
        sizes.init_std = 0.2;
        sizes
    }
}

impl LanguageModel for Repeated {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = Gpt2Config;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &Gpt2Config) -> Sizes {
        Repeated::all_sizes(config.vocab)
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

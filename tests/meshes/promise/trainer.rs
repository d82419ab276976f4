//! Values that a model makes in its `forward`, trained by the trainer: values that differ between ranks are refused in
//! the first step, and values of a layer may be other ones on each pipeline stage.

use std::ops::Range;

use meshwright::checkpoint::hf::LlamaConfig;
use meshwright::prelude::*;
use meshwright::rotary::{RopeParameters, RopeScaling};
use meshwright::train::{Config, Summary};

dims! { Batch @ data, Seq @ cp, Hidden, Heads, HeadDim, Vocab, Case }

type Stream = Tensor<(Batch, Seq, Hidden)>;

/// Values that a model makes in its `forward`, by the size of the dim `Case`.
const CONSTANTS: usize = 1;
const MASK: usize = 2;
const BLOCK: usize = 3;
const NUMBER: usize = 4;
const PADDING: usize = 5;
const DOCUMENTS: usize = 6;
const OF_LAYER: usize = 7;
/// Nothing else than constants, and rotary frequencies that follow from the length of a sequence.
const DYNAMIC: usize = 8;

/// Values made in a layer.
struct Made {
    case: usize,
    layer: usize,
}

impl Build for Made {
    fn build(builder: &mut Builder<'_>) -> Self {
        let site = builder.site();
        let layer = site.field().split('.').find_map(|part| part.parse().ok());
        Made { case: builder.size::<Case>(), layer: layer.unwrap_or_default() }
    }
}

impl Made {
    /// Returns the product of `x` with a value.
    fn times(&self, x: &Stream) -> Stream {
        let number = |is_wrong: bool| 1.0 + if is_wrong { x.rank().index() as f32 } else { 0.0 };
        match self.case {
            BLOCK => {
                let block = vec![number(true); x.to_local_vec().len()];
                x * Tensor::<(Batch, Seq, Hidden)>::from_block(x.rank(), &x.sizes(), &block)
            }
            NUMBER => x * number(true),
            OF_LAYER => {
                let of_layer = 1.0 + self.layer as f32;
                let mask: Stream =
                    Tensor::from_fn(x.rank(), &x.sizes(), |at| of_layer + at[2] as f32);
                x * mask * of_layer
            }
            case => {
                let number = number(case == MASK);
                x * Tensor::<(Batch, Seq, Hidden)>::from_fn(x.rank(), &x.sizes(), |_| number)
            }
        }
    }

    /// Returns the padding of the samples of `x`.
    fn padding(&self, x: &Stream) -> Padding<(Batch, Seq)> {
        let first = if self.case == PADDING { x.rank().index() } else { 0 };
        let [rows, positions] = [x.local_extents()[0].local, x.sizes()[1]];
        let valid: Vec<Range<usize>> = vec![first..positions; rows];
        Padding::from_block(x.rank(), x.sizes()[0], &valid)
    }

    /// Returns tokens with documents, two per row, or without.
    fn with_documents(&self, tokens: &Tokens<(Batch, Seq)>) -> Tokens<(Batch, Seq)> {
        if self.case != DOCUMENTS {
            return tokens.clone();
        }
        let second = 4 + tokens.rank().index() as u32;
        let [rows, seq] = [tokens.local_extents()[0].local, tokens.local_extents()[1].global];
        let row = (0..seq as u32).map(|position| if position < second { 0 } else { second });
        tokens.with_documents(&row.collect::<Vec<_>>().repeat(rows))
    }
}

#[model]
struct Block {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (Heads, HeadDim)>,
    rope: Rope<HeadDim>,
    #[sharded(cp = "ring")]
    core: Attention<Heads, Heads, HeadDim>,
    #[sharded(tp = "row")]
    o: Linear<(Heads, HeadDim), Hidden>,
    made: Made,
}

#[forward]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        let y = self.norm.forward(x);
        let [q, k] = [&self.q, &self.k].map(|of| self.rope.forward(&of.forward(&y)));
        let v = self.v.forward(&y);
        let heads = match self.made.case {
            DOCUMENTS => self.core.forward(&(q, k, v)),
            _ => self.core.forward(&(q, k, v, &self.made.padding(x))),
        };
        x + self.made.times(&self.o.forward(&heads))
    }
}

#[model]
struct Start {
    #[sharded(tp = "vocab")]
    embed: Embedding<Vocab, Hidden>,
    made: Made,
}

#[forward]
impl Start {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream {
        self.embed.forward(&self.made.with_documents(tokens))
    }
}

#[model]
struct End {
    norm: RmsNorm<Hidden>,
}

#[forward]
impl End {
    fn forward(&self, x: &Stream) -> Stream {
        self.norm.forward(x)
    }
}

#[model]
struct Lm {
    #[pipeline_stage]
    start: Start,
    #[pipeline_stage]
    blocks: Stack<Block>,
    #[pipeline_stage]
    end: End,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Lm {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for Lm {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = LlamaConfig;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &LlamaConfig) -> Sizes {
        let mut sizes = Sizes::new()
            .with(Hidden, config.hidden)
            .with(Heads, config.heads)
            .with(HeadDim, config.head_dim)
            .with(Vocab, config.vocab)
            .with(Layers, config.layers)
            .with(Case, config.ffn);
        if config.ffn == DYNAMIC {
            let scaling = RopeScaling::Dynamic { factor: 4.0, trained_positions: 8 };
            sizes.rope = RopeParameters { theta: 100.0, scaling, ..RopeParameters::default() };
            // Large scores, so that a sample depends on positions.
            sizes.init_std = 0.5;
        }
        sizes
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

fn train(mesh: &str, case: usize) -> meshwright::Result<Summary> {
    train_with(&format!("--ffn {case} --seq 16 --steps 2 --sample-tokens 0 --mesh {mesh}"))
}

fn train_with(flags: &str) -> meshwright::Result<Summary> {
    let words = format!("train --hidden 16 --heads 4 --layers 4 --batch 4 --threads 1 {flags}");
    Trainer::<Lm>::new(Config::parse(words.split(' '))?)?.train()
}

/// Windows of 33 to 40 positions, which are padded to a multiple of 4, 6 and 8 over `cp`, with frequencies of more
/// positions than the 8 that the model was trained for.
#[test]
fn samples_of_dynamic_rope_are_the_same() {
    let sample = |mesh: &str| {
        let words = format!("--ffn {DYNAMIC} --seq 48 --steps 1 --sample-tokens 9 --mesh {mesh}");
        train_with(&words).unwrap_or_else(|error| panic!("{mesh}: {error}")).sample
    };
    let alone = sample("1");
    for mesh in ["tp=2", "cp=2", "cp=3", "cp=4", "pp=2,cp=2 --micro-batches 2"] {
        assert_eq!(sample(mesh), alone, "{mesh}");
    }
}

#[test]
fn wrong_values_of_a_forward_are_refused() {
    let of_tensors = [MASK, BLOCK, NUMBER, PADDING, DOCUMENTS];
    // Ranks of cp hold different parts of the stream, and the same samples.
    let of_samples = [PADDING, DOCUMENTS];
    // Documents that a pipeline stage makes cannot cross to the next one, whatever they are.
    let of_stages = [MASK, BLOCK, NUMBER, PADDING];
    for (mesh, cases) in [
        ("tp=2", &of_tensors[..]),
        ("dp=2,tp=2 --micro-batches 2", &of_tensors),
        ("tp=2 --recompute full", &of_tensors),
        ("pp=2,tp=2 --micro-batches 2", &of_stages),
        ("pp=2,tp=2 --micro-batches 4 --schedule zb-v", &of_stages),
        ("cp=2", &of_samples),
        ("pp=2,cp=2 --micro-batches 2", &[PADDING]),
    ] {
        for case in cases {
            let text = train(mesh, *case).expect_err("different values are refused").to_string();
            for part in ["is declared the same on all ranks", "of different numbers", file!()] {
                assert!(text.contains(part), "{mesh}, case {case}: no `{part}` in: {text}");
            }
        }
    }
}

/// The next stage would attend to all of each row, as it has the tokens that the model takes.
#[test]
fn documents_that_a_stage_makes_are_refused() {
    let text =
        train("pp=2 --micro-batches 2", DOCUMENTS).expect_err("they do not cross").to_string();
    assert!(text.contains("must have the documents of the tokens that the model takes"), "{text}");
}

/// Stages make the values of their own layers, which other stages do not make.
#[test]
fn values_of_layers_are_those_of_one_rank() {
    for case in [CONSTANTS, OF_LAYER] {
        let alone = train("1", case).unwrap();
        for mesh in [
            "tp=2",
            "cp=2",
            "dp=2,cp=2",
            "pp=2 --micro-batches 2",
            "pp=2,tp=2 --micro-batches 4 --schedule zb-v",
            "pp=4 --micro-batches 4 --recompute full",
            "pp=2,cp=2 --micro-batches 2",
        ] {
            let shared = train(mesh, case).unwrap_or_else(|error| panic!("{mesh}: {error}"));
            for (loss, expected) in shared.losses.iter().zip(&alone.losses) {
                let is_near = (loss - expected).abs() < 1e-5 * expected;
                assert!(is_near, "{mesh}, case {case}: {loss}, alone {expected}");
            }
        }
    }
}

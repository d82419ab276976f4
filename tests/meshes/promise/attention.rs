//! Attention with unusual shardings: samples split over `tp`, padding that crosses pipeline stages, and heads that an
//! operation cuts.

use std::ops::Range;

use meshwright::checkpoint::hf::LlamaConfig;
use meshwright::nn::build;
use meshwright::prelude::*;
use meshwright::train::{Config, Summary};
use meshwright_tests::data::numbers;

use super::harness::{Numbers, assert_parity_on, gradients_of, mesh, on};

/// Attention for which each rank of `tp` computes some of the samples.
mod split_samples {
    use super::*;

    /// Declares a model over a sequence, with the style of its attention.
    macro_rules! split_samples {
        ($name:ident, [$($home:tt)*], $(#[$style:meta])*) => {
            pub mod $name {
                use super::*;

                dims! { Batch @ data, Seq $($home)*, Hidden, Heads, HeadDim, Buckets }

                type Heading = Tensor<(Split<Batch, Tp>, Seq, Heads, HeadDim)>;

                #[model]
                struct Net {
                    q: Linear<Hidden, (Heads, HeadDim)>,
                    k: Linear<Hidden, (Heads, HeadDim)>,
                    v: Linear<Hidden, (Heads, HeadDim)>,
                    $(#[$style])*
                    core: Attention<Heads, Heads, HeadDim>,
                    bias: RelativeBias<Buckets, Heads>,
                    sinks: AttentionSinks<Heads>,
                }

                impl Net {
                    fn attend(
                        &self,
                        x: &Tensor<(Batch, Seq, Hidden)>,
                        ids: &Tokens<(Split<Batch, Tp>, Seq)>,
                    ) -> Heading {
                        let x = x.slice(Batch, Tp);
                        let (q, k, v) = (self.q.forward(&x), self.k.forward(&x), self.v.forward(&x));
                        let documents = ids.documents();
                        self.core.forward(&(q, k, v, (documents, &self.bias, &self.sinks)))
                    }
                }

                pub fn run(rank: &Rank) -> Numbers {
                    let mut sizes = Sizes::new().with(Hidden, 6).with(Heads, 2).with(HeadDim, 4).with(Buckets, 4);
                    sizes.init_std = 0.5;
                    sizes.attention.max_distance = 8;
                    let built = build::<Net>(rank, &sizes).unwrap_or_else(|error| panic!("{error}"));
                    let x: Tensor<(Batch, Seq, Hidden)> = numbers(rank, "x", &[4, 8, 6]);
                    let like: Tensor<(Split<Batch, Tp>, Seq)> = Tensor::from_fn(rank, &[4, 8], |_| 0.0);
                    let rows = like.local_extents()[0].positions();
                    // The second document of a row begins at a position of its own.
                    let start_of = |row: usize, at: usize| if at < 2 + row { 0 } else { 2 + row as u32 };
                    let starts = rows.flat_map(|row| (0..8).map(move |at| start_of(row, at)));
                    let starts: Vec<u32> = starts.collect();
                    let ids = vec![0; like.to_local_vec().len()];
                    let ids: Tokens<(Split<Batch, Tp>, Seq)> = Tokens::from_block(rank, &[4, 8], &ids);
                    let y = built.model.attend(&x, &ids.with_documents(&starts));
                    let loss = Loss::mean_of(&y.tanh());
                    let mean = loss.reduce().value() as f32;
                    let mut numbers = gradients_of(&built, &loss.backward().reduce());
                    numbers.insert("loss".into(), vec![mean]);
                    numbers
                }
            }
        };
    }

    split_samples!(whole, [],);
    split_samples!(over_cp, [@ cp], #[sharded(cp = "ring")]);

    #[test]
    fn attention_over_split_samples_is_that_of_one_rank() {
        let cases = ["tp=2", "dp=2,tp=2", "tp=4"].map(mesh);
        assert_parity_on("attention over split samples", &cases, whole::run);
        let cases = ["tp=2", "cp=2,tp=2", "cp=2"].map(mesh);
        assert_parity_on("attention over split samples and cp", &cases, over_cp::run);
    }
}

dims! { Batch @ data, Seq @ cp, Hidden, Heads, HeadDim, Vocab }

type Stream = Tensor<(Batch, Seq, Hidden)>;
type Flow = (Stream, Padding<(Batch, Seq)>);

/// Attention whose heads are cut after their projection.
#[model]
struct CutHeads {
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(cp = "ulysses")]
    core: Attention<Heads, Heads, HeadDim>,
}

/// Four heads, two on each rank of `tp`, cannot be exchanged among four ranks of `cp`; no layer has told so before.
#[test]
fn cut_heads_that_cannot_be_exchanged_are_refused() {
    let run = |case: &'static str| {
        on(mesh(case), |rank| {
            let sizes = Sizes::new().with(Hidden, 6).with(Heads, 4).with(HeadDim, 4);
            let built = build::<CutHeads>(rank, &sizes).unwrap_or_else(|error| panic!("{error}"));
            let x: Stream = numbers(rank, "x", &[2, 16, 6]);
            let q = built.model.q.forward(&x).slice(Heads, Tp);
            let y = built.model.core.forward(&(q.clone(), q.clone(), q));
            Loss::mean_of(&y).backward().reduce().norm()
        })
    };
    let alone = run("1").unwrap()[0];
    for norm in run("cp=2,tp=2").unwrap() {
        assert!((norm - alone).abs() < 1e-5 * alone, "{norm}, alone {alone}");
    }
    let text = run("cp=4,tp=2").unwrap_err();
    for part in ["`core`", "2 query heads of a rank cannot be exchanged among 4 ranks of cp"] {
        assert!(text.contains(part), "no `{part}` in {text}");
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
    #[sharded(cp = "ring")]
    core: Attention<Heads, Heads, HeadDim>,
    #[sharded(tp = "row")]
    o: Linear<(Heads, HeadDim), Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, (x, padding): &Flow) -> Flow {
        let y = self.norm.forward(x);
        let (q, k, v) = (self.q.forward(&y), self.k.forward(&y), self.v.forward(&y));
        let heads = self.core.forward(&(q, k, v, padding));
        (x + self.o.forward(&heads), padding.clone())
    }
}

/// Embeds tokens, and hides the first positions of each row: one more in each row of the global batch.
#[model]
struct Start {
    #[sharded(tp = "vocab")]
    embed: Embedding<Vocab, Hidden>,
}

#[forward]
impl Start {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Flow {
        let x = self.embed.forward(tokens);
        let [rows, positions] = [x.local_extents()[0], x.local_extents()[1]];
        let valid: Vec<Range<usize>> =
            rows.positions().map(|row| row % 5..positions.global).collect();
        let padding = Padding::from_block(x.rank(), rows.global, &valid);
        (x, padding)
    }
}

#[model]
struct End {
    norm: RmsNorm<Hidden>,
}

#[forward]
impl End {
    fn forward(&self, flow: &Flow) -> Stream {
        self.norm.forward(&flow.0)
    }
}

#[model]
struct Padded {
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
impl Padded {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for Padded {
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
            .with(Layers, config.layers);
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

fn train_padded(flags: &str) -> Summary {
    let words = format!(
        "train --hidden 16 --heads 4 --layers 4 --seq 16 --batch 8 --steps 3 --threads 1 --sample-tokens 0 {flags}"
    );
    let trainer = Config::parse(words.split(' ')).map(Trainer::<Padded>::new);
    trainer.unwrap().and_then(Trainer::train).unwrap_or_else(|error| panic!("{flags}: {error}"))
}

#[test]
fn padding_crosses_pipeline_stages() {
    let alone = train_padded("--mesh 1");
    for mesh in ["1", "pp=2", "pp=2,cp=2", "pp=2,tp=2"] {
        for recompute in ["none", "full"] {
            let flags = format!("--mesh {mesh} --micro-batches 4 --recompute {recompute}");
            let shared = train_padded(&flags);
            let both = shared.losses.iter().zip(&alone.losses);
            for (loss, expected) in both.chain(shared.grad_norms.iter().zip(&alone.grad_norms)) {
                let is_near = (loss - expected).abs() < 2e-5 * expected;
                assert!(is_near, "{flags}: {loss}, alone {expected}");
            }
        }
    }
}

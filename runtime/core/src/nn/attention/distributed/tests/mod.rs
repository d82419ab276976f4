//! A language model over a distributed sequence: losses and every parameter's gradient equal one rank's.

mod combinations;
mod cross;
mod declared;
mod extras;
mod lengths;

use crate::nn::builder::declare;
use crate::nn::{
    Attention, AttentionOptions, ContextStyle, Embedding, Layer, Layers, Linear, LmHead,
    RecomputeOverride, RmsNorm, Rope, Sizes, Stack, build,
};
use crate::tensor::{Rank, Settings, Targets, Tensor, Tokens, ZeroStage};
use meshwright_comm::{CommError, RankComms, launch};
use meshwright_cpu::CpuBackend;
use meshwright_macros::{dims, forward, model};
use meshwright_mesh::MeshShape;

dims! { crate = crate; Batch @ data, Seq @ cp, Hidden, Heads, KvHeads, HeadDim, Vocab }

type Stream = Tensor<(Batch, crate::layout::Split<Seq, crate::layout::Tp>, Hidden)>;

#[model(crate = crate)]
struct Block {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (KvHeads, HeadDim)>,
    rope: Rope<HeadDim>,
    #[sharded(cp = "ring")]
    core: Attention<Heads, KvHeads, HeadDim>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, HeadDim), Hidden>,
}

#[forward(crate = crate)]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        let y = self.norm.forward(x);
        let q = self.rope.forward(&self.q.forward(&y));
        let k = self.rope.forward(&self.k.forward(&y));
        let v = self.v.forward(&y);
        x + self.o.forward(&self.core.forward(&(q, k, v)))
    }
}

#[model(crate = crate)]
struct Lm {
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    #[recompute(save = [core])]
    blocks: Stack<Block>,
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

/// Two chunks for each of eight ranks, and of three.
const SEQ: usize = 48;
const BATCH: usize = 4;

fn sizes() -> Sizes {
    let mut sizes = Sizes::new()
        .with(Hidden, 16)
        .with(Heads, 4)
        .with(KvHeads, 2)
        .with(HeadDim, 4)
        .with(Vocab, 11)
        .with(Layers, 2);
    sizes.init_std = 0.3;
    sizes.recompute = Some(RecomputeOverride::Off);
    sizes
}

fn with_style(style: ContextStyle, mut sizes: Sizes) -> Sizes {
    sizes.context = Some(style);
    sizes
}

/// The loss, and the gradients of all parameters by path.
type Results = (f64, Vec<(String, Vec<f32>)>);

#[derive(Clone)]
struct Run {
    sizes: Sizes,
    packed: bool,
    micro_batches: usize,
    zero: ZeroStage,
}

impl Run {
    fn new(sizes: Sizes) -> Run {
        Run { sizes, packed: false, micro_batches: 1, zero: ZeroStage::Replicated }
    }

    fn on(&self, mesh: &str) -> Results {
        let shape: MeshShape = mesh.parse().unwrap();
        let mut results = launch(&shape, |comms| {
            let backend = Box::new(CpuBackend::new(1).unwrap());
            let settings = Settings { zero: self.zero, ..Settings::new(7) };
            Ok::<_, CommError>(self.on_rank(&Rank::with_settings(comms, backend, settings)))
        })
        .unwrap_or_else(|error| panic!("{mesh}: {error}"));
        let first = results.swap_remove(0);
        for other in results {
            assert_eq!(other.0.to_bits(), first.0.to_bits(), "{mesh}: all ranks have one loss");
        }
        first
    }

    fn on_rank(&self, rank: &Rank) -> Results {
        let built = build::<Lm>(rank, &self.sizes).unwrap();
        let data_ranks = rank.degree_of(crate::layout::AxisSet::DATA);
        let data_rank = rank.position(crate::layout::AxisSet::DATA);
        let local = BATCH / data_ranks;
        let rows = local / self.micro_batches;
        let mut gradients = None;
        let mut loss_of_step = 0.0;
        for micro_batch in 0..self.micro_batches {
            let first = micro_batch * rows;
            let own = data_rank * local + first..data_rank * local + first + rows;
            let cells = || own.clone().flat_map(|row| (0..SEQ).map(move |at| (row, at)));
            let ids: Vec<u32> =
                cells().map(|(row, at)| (row * 7 + at * at + 3) as u32 % 11).collect();
            // Some targets are ignored, and not equally many on each rank.
            let ignored = Targets::<(Batch, Seq)>::IGNORED;
            let targets: Vec<u32> = cells()
                .map(|(row, at)| if at < 3 * row { ignored } else { (row + at * 5) as u32 % 11 })
                .collect();
            let starts: Vec<u32> = cells().map(|(row, at)| start(row, at)).collect();
            let tokens = |ids: &[u32]| {
                Tokens::<(Batch, Seq)>::from_whole_rows(rank, &[BATCH, SEQ], first, ids)
            };
            let (mut tokens, targets) = (tokens(&ids), tokens(&targets));
            if self.packed {
                tokens = tokens.with_documents(&starts);
            }
            let model = &built.model;
            let x = model.blocks.forward(&model.embed.forward(&tokens));
            let loss = model.head.loss(&model.norm.forward(&x), &targets);
            // The mean of a micro-batch depends on its rows, which are others on each mesh.
            if self.micro_batches == 1 {
                loss_of_step = loss.reduce().value();
            }
            let is_last = micro_batch + 1 == self.micro_batches;
            gradients = Some(match (gradients.take(), is_last) {
                (None, true) => Step::Done(loss.backward()),
                (None, false) => Step::Some(loss.accumulate()),
                (Some(Step::Some(before)), true) => Step::Done(before.backward(loss)),
                (Some(Step::Some(before)), false) => Step::Some(before.accumulate(loss)),
                (Some(Step::Done(_)), _) => unreachable!("the last micro-batch ends the step"),
            });
        }
        let Some(Step::Done(gradients)) = gradients else { unreachable!("a step has a last one") };
        let gradients = gradients.reduce();
        let norm = gradients.norm();
        let of =
            |param: &crate::tensor::ParamRef| (param.path().to_owned(), gradients.gather(param));
        let mut all: Vec<(String, Vec<f32>)> = built.params().iter().map(of).collect();
        all.push(("the norm".into(), vec![norm as f32]));
        (loss_of_step, all)
    }
}

enum Step {
    Some(crate::tensor::Gradients<crate::tensor::Accumulating>),
    Done(crate::tensor::Gradients<crate::tensor::Pending>),
}

/// Documents of different lengths in each row.
fn start(row: usize, at: usize) -> u32 {
    let starts: [&[usize]; BATCH] = [&[0, 1, 6, 29], &[0], &[0, 12, 17, 18, 40], &[0, 23]];
    *starts[row].iter().rev().find(|start| **start <= at).unwrap() as u32
}

#[track_caller]
fn assert_near(name: &str, actual: &Results, expected: &Results) {
    assert_within(2e-6, name, actual, expected);
}

/// Compares losses and gradients; the tolerance is relative to the loss and to the largest gradient of a parameter.
#[track_caller]
fn assert_within(tolerance: f64, name: &str, actual: &Results, expected: &Results) {
    let near = |a: f64, b: f64, scale: f64| (a - b).abs() <= tolerance * scale.max(1e-3);
    assert!(near(actual.0, expected.0, expected.0), "{name}: loss {} {}", actual.0, expected.0);
    assert_eq!(actual.1.len(), expected.1.len());
    for ((path, actual), (other, expected)) in actual.1.iter().zip(&expected.1) {
        assert_eq!((path, actual.len()), (other, expected.len()));
        let largest = expected.iter().fold(0.0f32, |a, b| a.max(b.abs()));
        assert!(largest > 0.0, "{path} has a gradient");
        for (a, b) in actual.iter().zip(expected) {
            let is_near = near(f64::from(*a), f64::from(*b), f64::from(largest));
            assert!(is_near, "{name}: gradient of {path}: {a} instead of {b}, largest {largest}");
        }
    }
}

const STYLES: [ContextStyle; 5] = [
    ContextStyle::Ring,
    ContextStyle::Gather,
    ContextStyle::Ulysses,
    ContextStyle::Hybrid(None),
    ContextStyle::Hybrid(Some(1)),
];

#[test]
fn every_style_and_mesh_has_the_gradients_of_one_rank() {
    for packed in [false, true] {
        let run = Run { packed, ..Run::new(sizes()) };
        let expected = run.on("dp=1");
        let meshes = ["cp=2", "cp=3", "cp=4", "dp=2,cp=2", "cp=2,tp=2", "fsdp=2,cp=2,tp=2"];
        for (mesh, style) in meshes.into_iter().flat_map(|mesh| STYLES.map(|style| (mesh, style))) {
            if mesh == "cp=3" && style == ContextStyle::Ulysses {
                continue;
            }
            let sizes = with_style(style, run.sizes.clone());
            let actual = Run { sizes, ..run.clone() }.on(mesh);
            assert_near(&format!("{mesh} {style} packed={packed}"), &actual, &expected);
        }
    }
}

/// Windows, micro-batches, ZeRO stages and recomputation.
#[test]
fn other_settings_have_the_gradients_of_one_rank() {
    let mut windowed = sizes();
    windowed.attention = AttentionOptions { windows: vec![Some(5), None], ..Default::default() };
    let recomputed = |what| {
        let mut sizes = sizes();
        sizes.recompute = Some(what);
        Run::new(sizes)
    };
    let runs = [
        Run::new(windowed.clone()),
        Run { packed: true, ..Run::new(windowed) },
        Run { micro_batches: 2, ..Run::new(sizes()) },
        Run { zero: ZeroStage::Parameters, ..Run::new(sizes()) },
        recomputed(RecomputeOverride::Full),
        recomputed(RecomputeOverride::Attention),
    ];
    for run in runs {
        let expected = run.on("dp=1");
        for (mesh, style) in [
            ("cp=4", ContextStyle::Ring),
            ("cp=2", ContextStyle::Gather),
            ("cp=2", ContextStyle::Ulysses),
            ("fsdp=2,cp=2", ContextStyle::Ring),
            ("fsdp=2,cp=4", ContextStyle::Hybrid(Some(2))),
        ] {
            let sizes = with_style(style, run.sizes.clone());
            let actual = Run { sizes, ..run.clone() }.on(mesh);
            assert_near(&format!("{mesh} {style}"), &actual, &expected);
        }
    }
}

#[test]
fn impossible_styles_are_refused_at_build() {
    let problems = |mesh: &str, sizes: &Sizes| {
        let comms = RankComms::unattended(mesh.parse().unwrap());
        let rank = Rank::new(comms, Box::new(CpuBackend::new(1).unwrap()), 0);
        declare::<Lm>(&rank, sizes).map(drop).unwrap_err().problems
    };
    let ulysses = with_style(ContextStyle::Ulysses, sizes());
    assert_eq!(
        problems("cp=4,tp=2", &ulysses),
        [
            "`blocks.*.core`: 2 query heads of a rank cannot be exchanged among 4 ranks of cp: use `cp = \"ring\"` or \
          `cp = \"gather\"`, which take any number, or `--cp ring`"
        ]
    );
    let hybrid = with_style(ContextStyle::Hybrid(Some(3)), sizes());
    assert_eq!(
        problems("cp=4", &hybrid),
        [
            "`blocks.*.core`: `hybrid=3` exchanges heads among groups of 3 ranks, but cp = 4 is not divisible by 3"
        ]
    );
}

/// Projections declared after their attention, and in the model around the one that contains it.
#[test]
#[allow(dead_code, reason = "the models are declared only")]
fn heads_of_a_rank_are_known_from_all_projections() {
    #[model(crate = crate)]
    struct Inner {
        #[sharded(cp = "ulysses")]
        core: Attention<Heads, Heads, HeadDim>,
    }
    #[model(crate = crate)]
    struct Around {
        #[sharded(cp = "ulysses")]
        core: Attention<Heads, Heads, HeadDim>,
        inner: Inner,
        #[sharded(tp = "col")]
        q: Linear<Hidden, (Heads, HeadDim)>,
    }
    #[model(crate = crate)]
    struct Whole {
        around: Around,
        whole: Inner,
    }
    let comms = RankComms::unattended("cp=4,tp=2".parse().unwrap());
    let rank = Rank::new(comms, Box::new(CpuBackend::new(1).unwrap()), 0);
    let problems = declare::<Around>(&rank, &sizes()).map(drop).unwrap_err().problems;
    let fields: Vec<&str> = problems.iter().map(|text| text.split(':').next().unwrap()).collect();
    assert_eq!(fields, ["`core`", "`inner.core`"]);
    let problems = declare::<Whole>(&rank, &sizes()).map(drop).unwrap_err().problems;
    // Nothing splits the heads of `whole`.
    assert_eq!(problems.len(), 2);
    assert!(problems[0].contains("2 query heads of a rank"), "{}", problems[0]);
}

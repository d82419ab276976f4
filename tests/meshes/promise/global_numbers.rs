//! Labels, masks, noise, initial values and counts by global indices: the same on every mesh.

use meshwright::checkpoint::hf::Gpt2Config;
use meshwright::layout::Shape;
use meshwright::pipeline::StageCut;
use meshwright::prelude::*;
use meshwright::schedule::ScheduleKind;
use meshwright::tensor::{Metric, Settings, ZeroStage};
use meshwright_tests::compare::distance;
use meshwright_tests::data::{Batches, TokenData, Turn};
use meshwright_tests::pipeline_run::train_stages;
use meshwright_tests::run::{Outcome, Setup, on_mesh, train};

use super::harness::{built, mesh, refused};

dims! { Batch @ data, Seq @ cp, Hidden, Wide, Vocab, Samples }

type Stream = Tensor<(Batch, Seq, Hidden)>;

const FILE: &str = "tests/meshes/promise/global_numbers.rs";
const DATA: TokenData = TokenData { batch: 8, seq: 8, vocab: 29, masked: false };
const MESHES: [&str; 6] = ["dp=2", "tp=2", "cp=2", "fsdp=2,tp=2", "dp=2,cp=2", "fsdp=4"];

/// A layer whose parts are initialized by the fans of the whole weight.
struct Fans {
    up: Param<(Hidden, Split<Wide, Tp>)>,
    down: Param<(Split<Wide, Tp>, Hidden)>,
}

impl Build for Fans {
    fn build(builder: &mut Builder<'_>) -> Self {
        let up = builder.param("up", Init::Kaiming(2.0f32.sqrt()));
        Fans { up, down: builder.param("down", Init::Xavier(1.0)) }
    }
}

#[model]
struct Block {
    norm: RmsNorm<Hidden>,
    fans: Fans,
}

#[forward]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        let wide = self.norm.forward(x).contract(&self.fans.up).gelu();
        let noise: Stream = Tensor::normal(x.rank(), &x.sizes(), "noise");
        let gate: Stream = Tensor::uniform(x.rank(), &x.sizes(), "gate");
        // Of a dim over tp too, each rank draws its part.
        let of_wide: Tensor<(Batch, Seq, Split<Wide, Tp>)> =
            Tensor::normal(x.rank(), &wide.sizes(), "noise of the wide stream");
        x * gate + (wide + of_wide * 0.1).contract(&self.fans.down).all_reduce() + noise * 0.2
    }
}

#[model]
struct Net {
    #[pipeline_stage]
    embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage]
    blocks: Stack<Block>,
    #[pipeline_stage(last)]
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

    fn sizes(_: &Gpt2Config) -> Sizes {
        sizes()
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        let late = targets.ignored_where(|index| index[1] < 3);
        self.head.loss(x, targets) + Loss::masked_mean_of(&x.square().mean(Hidden), &late)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x)
    }
}

fn sizes() -> Sizes {
    Sizes::new().with(Hidden, 16).with(Wide, 32).with(Vocab, DATA.vocab).with(Layers, 2)
}

/// Targets that follow from distributed tokens, without the prompts of even rows and without row 3.
#[derive(Clone, Copy)]
struct Shifted;

impl Batches for Shifted {
    fn seq(&self) -> usize {
        DATA.seq
    }

    fn block<S: Shape>(&self, rank: &Rank, turn: Turn) -> (Tokens<S>, Targets<S>) {
        let (tokens, _) = DATA.block::<S>(rank, turn);
        let is_ignored = |index: &[usize]| {
            index[0] == 3 || (index[0].is_multiple_of(2) && index[1] < index[0] / 2)
        };
        let targets = tokens.shifted(1).ignored_where(is_ignored);
        (tokens, targets)
    }
}

fn setup(zero: ZeroStage) -> Setup {
    let settings = Settings { zero, ..Settings::new(7) };
    Setup { steps: 3, micro_batches: 2, settings, ..Setup::new(sizes()) }
}

#[track_caller]
fn assert_same(label: &str, got: &Outcome, one: &Outcome) {
    let as_f32 = |all: &[f64]| all.iter().map(|x| *x as f32).collect::<Vec<_>>();
    for (got, one) in [(&got.losses, &one.losses), (&got.norms, &one.norms)] {
        assert!(distance(&as_f32(got), &as_f32(one)) < 1e-5, "{label}: {got:?} for {one:?}");
    }
    assert_eq!(got.initial, one.initial, "{label}: initial parameters");
    for (path, gradient) in &one.gradients {
        let distance = distance(&got.gradients[path], gradient);
        assert!(distance < 3e-5, "{label}: the gradient of `{path}` by {distance:.1e}");
    }
}

/// Steps of two micro-batches, whose numbers on the host and on ranks all follow from global indices.
#[test]
fn labels_masks_noise_and_fans_are_those_of_one_rank() {
    let run = |mesh: &str, zero| {
        train(mesh, &setup(zero), |model: &Net, rank, turn| {
            let (tokens, targets) = Shifted.block(rank, turn);
            model.loss(&tokens, &targets)
        })
    };
    let one = run("1", ZeroStage::Replicated);
    for mesh in MESHES {
        let zero =
            if mesh.contains("fsdp") { ZeroStage::Parameters } else { ZeroStage::Replicated };
        assert_same(mesh, &run(mesh, zero), &one);
    }
    let kind = ScheduleKind::OneFOneB;
    let schedule = kind.generate(2, kind.default_chunks(), 2).unwrap();
    let setup = setup(ZeroStage::Replicated);
    let staged = train_stages::<Net>("pp=2", &setup, &schedule, &StageCut::Even, Shifted);
    assert_same("pp=2", &staged, &one);
}

/// Later and earlier tokens, of whole rows and of those that ranks of `cp` share.
#[test]
fn tokens_are_shifted_within_their_global_rows() {
    let id = |row: usize, place: usize| (10 * row + place) as u32;
    for mesh in ["1", "cp=2", "dp=2,cp=2", "tp=2", "cp=4"] {
        on_mesh(mesh, 1, |rank| {
            let tokens: Tokens<(Batch, Seq)> =
                Tokens::from_fn(rank, &[4, 8], |index| id(index[0], index[1]));
            for by in [0isize, 1, 3, 7, 8, -1, -4] {
                let shifted = tokens.shifted(by);
                let expected: Tokens<(Batch, Seq)> = Tokens::from_fn(rank, &[4, 8], |index| {
                    let place = index[1] as isize + by;
                    let is_inside = (0..8).contains(&place);
                    if is_inside {
                        id(index[0], place as usize)
                    } else {
                        Tokens::<(Batch, Seq)>::IGNORED
                    }
                });
                assert_eq!(shifted.to_local_vec(), expected.to_local_vec(), "{mesh} by {by}");
            }
        });
    }
}

/// Means over a mask count its elements on all ranks, however these share them.
#[test]
fn masked_means_have_global_counts() {
    let run = |rank: &Rank| {
        let x: Tensor<(Batch, Seq)> =
            Tensor::from_fn(rank, &[4, 8], |at| (at[0] * 8 + at[1]) as f32);
        let mask = Targets::from_fn(rank, &[4, 8], |at| {
            if at[0] == 1 || at[1] > 4 { Targets::<(Batch, Seq)>::IGNORED } else { 0 }
        });
        let [loss, metric] =
            [Loss::masked_mean_of(&x, &mask).metric(), Metric::masked_mean_of(&x, &mask)]
                .map(|mean| mean.reduce());
        (loss.value(), metric.value(), metric.count())
    };
    // Rows 0, 2 and 3. Their positions 0 to 4 count.
    let expected = (40.0 / 3.0 + 2.0, 40.0 / 3.0 + 2.0, 15);
    for mesh in ["1", "dp=2", "tp=2", "cp=2", "dp=2,cp=2", "dp=4"] {
        for found in on_mesh(mesh, 1, run) {
            assert!((found.0 - expected.0).abs() < 1e-5 && found.0 == found.1, "{mesh}: {found:?}");
            assert_eq!(found.2, expected.2, "{mesh}");
        }
    }
}

/// Names, steps and elements have numbers of their own, with the moments of their distributions.
#[test]
fn noise_has_its_distribution() {
    let [numbers] = on_mesh("1", 1, |rank| {
        let draw = |name| {
            let normal = Tensor::<(Samples, Hidden)>::normal(rank, &[64, 512], name);
            (normal, Tensor::<(Samples, Hidden)>::uniform(rank, &[64, 512], name))
        };
        let both = |name| {
            let (normal, uniform) = draw(name);
            [normal.to_local_vec(), uniform.to_local_vec()]
        };
        let [first, again, other] = [both("a"), both("a"), both("b")];
        assert_eq!(first, again);
        rank.set_step(1);
        let later = both("a");
        for different in [&other, &later] {
            for (a, b) in first.iter().zip(different) {
                assert!(a.iter().zip(b).filter(|(a, b)| a == b).count() < 16);
            }
        }
        first
    })
    .try_into()
    .unwrap();
    let moments = |all: &[f32]| {
        let mean = all.iter().map(|x| f64::from(*x)).sum::<f64>() / all.len() as f64;
        let square = |x: &f32| (f64::from(*x) - mean).powi(2);
        [mean, all.iter().map(square).sum::<f64>() / all.len() as f64]
    };
    let [normal, uniform] = numbers;
    for (found, expected) in
        [(moments(&normal), [0.0, 1.0]), (moments(&uniform), [0.5, 1.0 / 12.0])]
    {
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 0.02, "{found} for {expected}");
        }
    }
    assert!(uniform.iter().all(|x| *x > 0.0 && *x <= 1.0));
    let fourth = uniform.iter().filter(|x| **x < 0.25).count() as f64 / uniform.len() as f64;
    assert!((fourth - 0.25).abs() < 0.02, "{fourth} of the numbers are below 0.25");
}

/// Noise that is named by the rank differs where it is declared the same, and along data axes.
#[test]
fn noise_named_by_the_rank_is_refused() {
    for name in ["tp=2", "dp=2"] {
        refused(
            mesh(name),
            FILE,
            &["the name of random numbers", "made it of different numbers"],
            |rank, spot| {
                let net = built::<Net>(rank, &sizes()).model;
                let tokens = Tokens::from_fn(rank, &[2, 8], |index| index[1] as u32);
                let x = net.forward(&tokens);
                let name = format!("noise {}", rank.index());
                spot.next(line!());
                let noise: Stream = Tensor::normal(rank, &x.sizes(), &name);
                Loss::mean_of(&(x * noise)).backward().reduce().norm()
            },
        );
    }
}

/// Parts have the standard deviations of the whole weight.
#[test]
fn fans_are_those_of_the_whole_weight() {
    for mesh in ["1", "tp=2", "tp=4"] {
        on_mesh(mesh, 1, |rank| {
            let sizes = Sizes::new().with(Hidden, 64).with(Wide, 256);
            let fans = built::<Fans>(rank, &sizes);
            let deviation = |param: &meshwright::tensor::ParamRef| {
                let all = param.gather(rank);
                (all.iter().map(|x| x * x).sum::<f32>() / all.len() as f32).sqrt()
            };
            let [up, down] = [fans.model.up.handle(), fans.model.down.handle()].map(deviation);
            let expected = [(2.0f32 / 64.0).sqrt(), (2.0f32 / (64.0 + 256.0)).sqrt()];
            assert!((up / expected[0] - 1.0).abs() < 0.03, "{mesh}: {up} for {}", expected[0]);
            assert!((down / expected[1] - 1.0).abs() < 0.03, "{mesh}: {down} for {}", expected[1]);
        });
    }
}

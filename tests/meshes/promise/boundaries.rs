//! Elementwise operations are fused, and a fused expression is rounded once. Where a recomputed segment or a pipeline
//! stage begins, and who looks at a tensor, changes nothing: not the rounding of bf16, and not the order of sums.

use std::num::NonZeroUsize;
use std::sync::Arc;

use meshwright::backend::DType;
use meshwright::nn::{RecomputeOverride, build};
use meshwright::pipeline::{Pipeline, StageCut, StageRequest, build_stages, plan_stages};
use meshwright::prelude::*;
use meshwright::schedule::{ScheduleKind, verify};
use meshwright::tensor::{Mean, ParamRef, Settings, ZeroStage};
use meshwright_tests::compare::{Tensors, assert_same_bits};
use meshwright_tests::run::on_mesh_with;

use super::harness::gradients_of;
use super::net::{Batch, Hidden, Ids, Seq, Stream, VOCAB, Vocab, micro_batch};

const LAYERS: usize = 4;

const MICRO_BATCHES: usize = 4;

/// A layer that begins and ends with elementwise operations, and computes its input in between.
#[model]
struct Elementwise {
    gain: Param<(Hidden,)>,
}

#[forward]
impl Elementwise {
    fn forward(&self, x: &Stream) -> Stream {
        let squares = x * x;
        drop(x.mean(Hidden));
        (x + squares.tanh() * &self.gain).tanh()
    }
}

type Streams = (Stream, Stream, Stream);

/// A stage that returns one tensor three times, and reads it itself.
#[model]
struct Thrice {
    up: Linear<Hidden, Hidden>,
    down: Linear<Hidden, Hidden>,
}

#[forward]
impl Thrice {
    fn forward(&self, x: &Stream) -> Streams {
        let x = self.up.forward(x).tanh();
        drop(self.down.forward(&x).mean(Hidden));
        (x.clone(), x.clone(), x)
    }
}

/// A layer that reads its first input several times, passes a tensor on that it reads itself, and returns one that no
/// layer behind it reads.
#[model]
struct Reading {
    up: Linear<Hidden, Hidden>,
    down: Linear<Hidden, Hidden>,
    gain: Param<(Hidden,)>,
}

#[forward]
impl Reading {
    fn forward(&self, (a, b, c): &Streams) -> Streams {
        let hidden = (self.up.forward(a) + self.down.forward(b)).tanh();
        let read = self.down.forward(&hidden) + self.up.forward(&hidden) + self.down.forward(a);
        (a + read, hidden.clone(), c + hidden.tanh() * &self.gain)
    }
}

/// A layer that reads one of its inputs, and passes the others on in another order.
#[model]
struct Passing {
    up: Linear<Hidden, Hidden>,
}

#[forward]
impl Passing {
    fn forward(&self, (a, b, c): &Streams) -> Streams {
        let a = a + self.up.forward(a);
        (b.clone(), c.clone(), a)
    }
}

/// A stage that reads all of its inputs several times, in turn, and a sum inside of a recomputed field and outside.
#[model]
struct Join {
    #[recompute]
    inner: Elementwise,
    up: Linear<Hidden, Hidden>,
    down: Linear<Hidden, Hidden>,
}

#[forward]
impl Join {
    fn forward(&self, (a, b, c): &Streams) -> Stream {
        let up = [a, b, c].map(|x| self.up.forward(x).tanh());
        let down = [a, b, c].map(|x| self.down.forward(x).tanh());
        let sum = |[a, b, c]: &[Stream; 3]| a + b * c;
        let joined = &sum(&up) * &sum(&down) + b;
        let x = self.up.forward(&joined) + a;
        (self.inner.forward(&x) + &x * &x).tanh()
    }
}

#[model]
struct Net {
    #[pipeline_stage]
    embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage]
    #[recompute]
    thrice: Thrice,
    #[pipeline_stage]
    #[recompute]
    reading: Stack<Reading>,
    #[pipeline_stage]
    #[recompute]
    passing: Stack<Passing>,
    #[pipeline_stage]
    #[recompute]
    join: Join,
    #[pipeline_stage]
    #[recompute]
    first: Elementwise,
    #[pipeline_stage]
    #[recompute]
    layers: Stack<Elementwise>,
    #[pipeline_stage]
    last: Elementwise,
}

#[forward]
impl Net {
    fn forward(&self, ids: &Ids) -> Stream;
}

fn sizes(recompute: Option<RecomputeOverride>) -> Sizes {
    let mut sizes =
        Sizes::new().with(Hidden, 8).with(Vocab, VOCAB).with(Layers, LAYERS).with(Seq, 6);
    sizes.init_std = 0.7;
    sizes.recompute = recompute;
    sizes
}

fn settings(compute: DType, zero: ZeroStage) -> Settings {
    Settings { compute, zero, ..Settings::new(7) }
}

fn batch(rank: &Rank, index: usize) -> Ids {
    micro_batch(rank, (8, 6), (index, MICRO_BATCHES), true).tokens
}

fn squares(x: &Stream) -> Loss<(Batch, Seq, Hidden)> {
    Loss::mean_of(&(x * x))
}

fn train(rank: &Rank, recompute: Option<RecomputeOverride>) -> Tensors {
    let built = build::<Net>(rank, &sizes(recompute)).unwrap_or_else(|error| panic!("{error}"));
    let mut mean = Mean::default();
    let mut loss = |index| {
        let loss = squares(&built.model.forward(&batch(rank, index)));
        mean += loss.reduce();
        loss
    };
    let mut gradients = loss(0).accumulate();
    for index in 1..MICRO_BATCHES - 1 {
        gradients = gradients.accumulate(loss(index));
    }
    let gradients = gradients.backward(loss(MICRO_BATCHES - 1)).reduce();
    let mut numbers = gradients_of(&built, &gradients);
    numbers.insert("loss".into(), vec![mean.value() as f32]);
    numbers
}

#[test]
fn no_bit_depends_on_what_is_recomputed() {
    let every = |layers| Some(RecomputeOverride::Every(NonZeroUsize::new(layers).unwrap()));
    for compute in [DType::F32, DType::Bf16] {
        for (mesh, zero) in [("1", ZeroStage::Replicated), ("fsdp=2", ZeroStage::Parameters)] {
            let run = |recompute| {
                on_mesh_with(mesh, 1, settings(compute, zero), |rank| train(rank, recompute))
            };
            let kept = run(Some(RecomputeOverride::Off));
            for recompute in [None, Some(RecomputeOverride::Full), every(2), every(3)] {
                for (found, expected) in run(recompute).iter().zip(&kept) {
                    let label = format!("{compute:?} on {mesh}, {recompute:?}");
                    assert_same_bits(&label, found, expected);
                }
            }
        }
    }
}

fn train_stages(rank: &Rank, recompute: Option<RecomputeOverride>, kind: ScheduleKind) -> Tensors {
    let schedule = kind.generate(2, kind.default_chunks(), MICRO_BATCHES).unwrap();
    let schedule = Arc::new(verify(&schedule).unwrap());
    let placement = &schedule.lowered().placement;
    let request = StageRequest { placement, cut: &StageCut::Even, seq: 6 };
    let sizes = sizes(recompute);
    let plan = plan_stages::<Net>(rank, &sizes, &request).unwrap();
    let built = build_stages::<Net>(rank, &sizes, &plan).unwrap();
    let pipeline = Pipeline::new(rank, &built, &sizes, &plan, &schedule).unwrap();
    let inputs: Vec<Ids> = (0..MICRO_BATCHES).map(|index| batch(rank, index)).collect();
    let step = pipeline.run_step(&built.model, &inputs, |_, x, _| squares(x)).unwrap();
    let mut mean = Mean::default();
    step.losses.iter().for_each(|loss| mean += loss.reduce());
    let gradients = step.gradients.reduce();
    let owned = built.params().into_iter().filter(ParamRef::is_owned);
    let gradient =
        |param: ParamRef| (format!("gradient of {}", param.path()), gradients.gather(&param));
    let mut numbers: Tensors = owned.map(gradient).collect();
    numbers.insert("loss".into(), vec![mean.value() as f32]);
    numbers
}

#[test]
fn no_bit_depends_on_where_stages_begin() {
    for compute in [DType::F32, DType::Bf16] {
        let settings = settings(compute, ZeroStage::Replicated);
        for recompute in [None, Some(RecomputeOverride::Off)] {
            let one = on_mesh_with("1", 1, settings, |rank| train(rank, recompute)).remove(0);
            for kind in ScheduleKind::ALL {
                let found =
                    on_mesh_with("pp=2", 1, settings, |rank| train_stages(rank, recompute, kind));
                let all: Tensors = found.into_iter().flatten().collect();
                assert_same_bits(&format!("{compute:?}, {recompute:?}, {kind}"), &all, &one);
            }
        }
    }
}

/// Ranks of `tp` hold the same stream, whichever of them looks at a constant, or at a tensor of an evaluation.
#[test]
fn ranks_may_look_in_every_dtype() {
    for compute in [DType::F32, DType::Bf16] {
        let run = |lookers: usize| {
            on_mesh_with("tp=2", 1, settings(compute, ZeroStage::Replicated), |rank| {
                let looks = rank.index() < lookers;
                let look = |x: &Stream| {
                    if looks {
                        drop(x.to_local_vec())
                    }
                };
                let at = |at: &[usize]| (at[0] + 2 * at[1] + 3 * at[2]) as f32 * 0.37;
                let x = Stream::from_fn(rank, &[4, 6, 8], at).tanh();
                look(&x);
                let built = build::<Net>(rank, &sizes(None)).unwrap();
                let scaled = x.scale(0.3);
                look(&scaled);
                let y = built.model.last.forward(&(&x - &scaled * 0.7));
                let evaluated = rank.evaluate(|| {
                    let squares = &y * &y;
                    look(&squares);
                    (squares + &x).tanh()
                });
                let numbers = [("y", y), ("evaluated", evaluated)];
                numbers
                    .map(|(name, x)| (name.to_owned(), x.to_local_vec()))
                    .into_iter()
                    .collect::<Tensors>()
            })
        };
        let expected = run(0).remove(0);
        for found in (0..3).flat_map(run) {
            assert_same_bits(&format!("{compute:?}"), &found, &expected);
        }
    }
}

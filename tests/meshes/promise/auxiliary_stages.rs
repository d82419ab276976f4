//! Auxiliary losses in pipeline stages whose outputs reach the loss in part, or not at all.

use std::cell::Cell;
use std::sync::Arc;

use meshwright::nn::{RecomputeOverride, Sizes, build};
use meshwright::pipeline::{Pipeline, StageCut, StageRequest, build_stages, plan_stages};
use meshwright::prelude::*;
use meshwright::schedule::{ScheduleKind, verify};
use meshwright::tensor::ParamRef;
use meshwright_tests::compare::distance;

use super::harness::{MeshCase, Numbers, ONE, mesh, on, stage3};

dims! { Batch @ data, Hidden }

type Stream = Tensor<(Batch, Hidden)>;
type Both = (Stream, Stream);

/// The tensor that has the auxiliary losses.
#[derive(Debug, Clone, Copy, PartialEq)]
enum On {
    /// The one that the loss reads.
    Main,
    /// The one that every stage passes on, and nothing reads.
    Side,
    /// One that its stage drops.
    Dropped,
}

thread_local! {
    static ON: Cell<On> = const { Cell::new(On::Main) };
    /// True if the last stage does not read its input.
    static IS_IGNORED: Cell<bool> = const { Cell::new(false) };
}

fn attach(x: Stream, side: Stream, terms: &Stream) -> Both {
    match ON.get() {
        On::Main => (x.with_auxiliary_loss(terms), side),
        On::Side => (x, side.with_auxiliary_loss(terms)),
        On::Dropped => {
            drop(x.clone().with_auxiliary_loss(terms));
            (x, side)
        }
    }
}

#[model]
struct First {
    main: Linear<Hidden, Hidden>,
    side: Linear<Hidden, Hidden>,
    terms: Linear<Hidden, Hidden>,
}

#[forward]
impl First {
    fn forward(&self, x: &Stream) -> Both {
        let terms = self.terms.forward(x).square();
        attach(self.main.forward(x), self.side.forward(x), &terms)
    }
}

#[model]
struct Block {
    mix: Linear<Hidden, Hidden>,
    terms: Linear<Hidden, Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, (x, side): &Both) -> Both {
        let terms = self.terms.forward(x).square();
        attach(x + self.mix.forward(x).tanh(), side.clone(), &terms)
    }
}

#[model]
struct Last {
    mix: Linear<Hidden, Hidden>,
    terms: Linear<Hidden, Hidden>,
    gain: Param<(Hidden,)>,
}

#[forward]
impl Last {
    fn forward(&self, (x, side): &Both) -> Both {
        let ones = Tensor::from_fn(x.rank(), &x.sizes(), |_| 1.0);
        let x = if IS_IGNORED.get() { &ones } else { x };
        let terms = self.terms.forward(x).square();
        attach(self.mix.forward(x) * &self.gain, side.clone(), &terms)
    }
}

#[model]
struct Net {
    #[pipeline_stage]
    first: First,
    #[pipeline_stage]
    blocks: Stack<Block>,
    #[pipeline_stage]
    last: Last,
}

#[forward]
impl Net {
    fn forward(&self, x: &Stream) -> Both;
}

fn sizes(recompute: Option<RecomputeOverride>) -> Sizes {
    let mut sizes = Sizes::new().with(Hidden, 6).with(Layers, 4);
    sizes.init_std = 0.4;
    sizes.recompute = recompute;
    sizes
}

fn input(rank: &Rank, index: usize) -> Stream {
    Tensor::from_fn(rank, &[4, 6], |at| ((7 * index + 6 * at[0] + at[1]) as f32).sin())
}

fn loss((y, _): &Both) -> Loss<(Batch, Hidden)> {
    Loss::mean_of(&y.square())
}

/// Gradients of two micro-batches, on one rank of a pipeline and without a schedule.
fn alone(rank: &Rank, sizes: &Sizes) -> Numbers {
    let built = build::<Net>(rank, sizes).unwrap();
    let [first, second] = [0, 1].map(|index| loss(&built.model.forward(&input(rank, index))));
    let gradients = first.accumulate().backward(second).reduce();
    let of = |param: ParamRef| (param.path().to_owned(), gradients.gather(&param));
    built.params().into_iter().map(of).collect()
}

/// Gradients of two micro-batches by a schedule, of the parameters of this rank.
fn scheduled(rank: &Rank, sizes: &Sizes, (ranks, kind): (usize, ScheduleKind)) -> Numbers {
    let schedule = kind.generate(ranks, kind.default_chunks(), 2).unwrap();
    let schedule = Arc::new(verify(&schedule).unwrap());
    let placement = &schedule.lowered().placement;
    let request = StageRequest { placement, cut: &StageCut::Even, seq: 1 };
    let plan = plan_stages::<Net>(rank, sizes, &request).unwrap();
    let built = build_stages::<Net>(rank, sizes, &plan).unwrap();
    let pipeline = Pipeline::new(rank, &built, sizes, &plan, &schedule).unwrap();
    let inputs = [0, 1].map(|index| input(rank, index));
    let step = pipeline.run_step(&built.model, &inputs, |_, y, _| loss(y)).unwrap();
    let gradients = step.gradients.reduce();
    let owned = built.params().into_iter().filter(ParamRef::is_owned);
    owned.map(|param| (param.path().to_owned(), gradients.gather(&param))).collect()
}

/// Every cut of a model has the same gradients, whether the loss depends on a part of a stage's output or not.
#[test]
fn auxiliary_losses_do_not_depend_on_the_cut() {
    let policies = [None, Some(RecomputeOverride::Full), "every=2".parse().ok()];
    let pipelines: [(MeshCase, usize, ScheduleKind); 6] = [
        (ONE, 1, ScheduleKind::OneFOneB),
        (mesh("pp=2"), 2, ScheduleKind::OneFOneB),
        (mesh("pp=2"), 2, ScheduleKind::ZeroBubbleH1),
        (mesh("pp=2"), 2, ScheduleKind::ZeroBubbleV),
        (mesh("pp=4"), 4, ScheduleKind::GPipe),
        (stage3("fsdp=2,pp=2"), 2, ScheduleKind::OneFOneB),
    ];
    for (at, is_ignored) in
        [On::Main, On::Side, On::Dropped].map(|at| [(at, false), (at, true)]).concat()
    {
        let set = || {
            ON.set(at);
            IS_IGNORED.set(is_ignored);
        };
        let expected = on(ONE, |rank| {
            set();
            alone(rank, &sizes(None))
        });
        let expected = &expected.unwrap()[0];
        for path in ["first.terms.weight", "blocks.1.terms.weight", "last.terms.weight"] {
            let is_reached = expected[path].iter().any(|gradient| *gradient != 0.0);
            // The output of the last stage is read by the loss alone.
            let is_output_only = at == On::Side && path.starts_with("last");
            let counts = at != On::Dropped && !is_output_only;
            assert_eq!(is_reached, counts, "{at:?} {is_ignored} {path}");
        }
        for policy in policies {
            let sizes = sizes(policy);
            let check = |name: &str, found: Vec<Numbers>| {
                for (path, gradient) in found.into_iter().flatten() {
                    let distance = distance(&gradient, &expected[&path]);
                    let both = (&gradient[..2], &expected[&path][..2]);
                    let label = format!("{at:?} {is_ignored} {policy:?} {name}: {path}");
                    assert!(distance < 1e-5, "{label} by {distance}: {both:?}");
                }
            };
            for case in [ONE, mesh("dp=2"), stage3("fsdp=2")] {
                let found = on(case, |rank| {
                    set();
                    alone(rank, &sizes)
                });
                check(case.mesh, found.unwrap());
            }
            for (case, ranks, kind) in pipelines {
                let found = on(case, |rank| {
                    set();
                    scheduled(rank, &sizes, (ranks, kind))
                });
                check(&format!("{} {kind:?}", case.mesh), found.unwrap());
            }
        }
    }
}

//! Models with pipeline stages whose layers share something beside their inputs and outputs: a tensor of another stage
//! is refused on one rank too, and so is a model that is declared otherwise each time.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use meshwright::nn::{Build, Builder, LayerIndex, Sizes, build};
use meshwright::optim::{Sgd, SgdOptions};
use meshwright::pipeline::{Pipeline, StageCut, StageRequest, build_stages, plan_stages};
use meshwright::prelude::*;
use meshwright::schedule::{ScheduleKind, verify};
use meshwright::tensor::{Init, Loss, Param, ParamRef};

use super::harness::{MeshCase, Numbers, ONE, assert_parity_on, mesh, on, stage3};

dims! { Batch @ data, Hidden }

type Stream = Tensor<(Batch, Hidden)>;

/// The place of a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
enum At {
    First,
    Layer(usize),
    Last,
}

/// A change of the output of a layer, which may share tensors.
type Shared = fn(At, &Stream, Stream) -> Stream;

thread_local! {
    static SHARED: Cell<Shared> = const { Cell::new(|_, _, y| y) };
    static KEPT: RefCell<Option<Stream>> = const { RefCell::new(None) };
    static ANY: RefCell<Option<Rc<dyn Any>>> = const { RefCell::new(None) };
    static PENALTY: RefCell<Option<Loss<(Batch, Hidden)>>> = const { RefCell::new(None) };
}

#[model]
struct First {
    mix: Linear<Hidden, Hidden>,
}

#[forward]
impl First {
    fn forward(&self, x: &Stream) -> Stream {
        SHARED.get()(At::First, x, self.mix.forward(x))
    }
}

#[model]
struct Block {
    layer: LayerIndex,
    mix: Linear<Hidden, Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        let scale = 1.0 / (2 + self.layer.get()) as f32;
        SHARED.get()(At::Layer(self.layer.get()), x, x + self.mix.forward(x).tanh().scale(scale))
    }
}

#[model]
struct Last {
    mix: Linear<Hidden, Hidden>,
}

#[forward]
impl Last {
    fn forward(&self, x: &Stream) -> Stream {
        SHARED.get()(At::Last, x, self.mix.forward(x))
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
    fn forward(&self, x: &Stream) -> Stream;
}

#[model]
struct Recomputed {
    #[pipeline_stage]
    first: First,
    #[pipeline_stage]
    #[recompute]
    blocks: Stack<Block>,
    #[pipeline_stage]
    last: Last,
}

#[forward]
impl Recomputed {
    fn forward(&self, x: &Stream) -> Stream;
}

fn sizes() -> Sizes {
    let mut sizes = Sizes::new().with(Hidden, 6).with(Layers, 4);
    sizes.init_std = 0.4;
    sizes
}

fn input(rank: &Rank, index: usize) -> Stream {
    Tensor::from_fn(rank, &[4, 6], |at| ((7 * index + 6 * at[0] + at[1]) as f32).sin())
}

fn loss(y: &Stream) -> Loss<(Batch, Hidden)> {
    let loss = Loss::mean_of(&(y * y));
    match PENALTY.take() {
        Some(penalty) => loss + penalty,
        None => loss,
    }
}

/// Runs two micro-batches on one rank of a pipeline, without a schedule.
fn step<M: Build + Module<In = Stream, Out = Stream>>(rank: &Rank, shared: Shared) -> Numbers {
    SHARED.set(shared);
    let built = build::<M>(rank, &sizes()).unwrap();
    let both = (0..2).map(|index| {
        let loss = loss(&built.model.forward(&input(rank, index)));
        let value = loss.reduce().value();
        let gradients = loss.backward().reduce();
        let of = |param: &ParamRef| (format!("{} {index}", param.path()), gradients.gather(param));
        let loss = (format!("loss {index}"), vec![value as f32]);
        built.params().iter().map(of).chain([loss]).collect::<Vec<_>>()
    });
    both.collect::<Vec<_>>().into_iter().flatten().collect()
}

/// Runs two micro-batches by a schedule.
fn scheduled(rank: &Rank, ranks: usize, shared: Shared) -> Numbers {
    SHARED.set(shared);
    let kind = ScheduleKind::OneFOneB;
    let schedule = kind.generate(ranks, kind.default_chunks(), 2).unwrap();
    let schedule = Arc::new(verify(&schedule).unwrap());
    let placement = &schedule.lowered().placement;
    let request = StageRequest { placement, cut: &StageCut::Even, seq: 1 };
    let plan = plan_stages::<Net>(rank, &sizes(), &request).unwrap();
    let built = build_stages::<Net>(rank, &sizes(), &plan).unwrap();
    let pipeline = Pipeline::new(rank, &built, &sizes(), &plan, &schedule).unwrap();
    let inputs = [0, 1].map(|index| input(rank, index));
    let step = pipeline.run_step(&built.model, &inputs, |_, y, _| loss(y)).unwrap();
    let gradients = step.gradients.reduce();
    let owned = built.params().into_iter().filter(ParamRef::is_owned);
    owned.map(|param| (param.path().to_owned(), gradients.gather(&param))).collect()
}

fn keep<T: Any + Clone>(kept: &T) {
    ANY.set(Some(Rc::new(kept.clone())));
}

fn kept<T: Any + Clone>() -> T {
    let any = ANY.with_borrow(|any| any.clone()).expect("a tensor was kept");
    (*any.downcast::<T>().expect("of this type")).clone()
}

fn store(x: &Stream) {
    KEPT.set(Some(x.clone()));
}

fn stored() -> Stream {
    KEPT.with_borrow(|kept| kept.clone()).expect("a tensor was stored")
}

type Aliased = Rc<dyn Fn(&Stream) -> Stream>;

/// Tensors that reach another stage beside its input, and a part of the message.
const WRONG: [(Shared, &str); 10] = [
    // The output of the first stage, in the last one: directly, by generic code, in a closure, and by a tuple.
    (
        |at, _, y| match at {
            At::First => {
                store(&y);
                y
            }
            At::Last => y + stored(),
            At::Layer(_) => y,
        },
        "`first` has computed is used in `last`",
    ),
    (
        |at, _, y| match at {
            At::First => {
                keep(&y.tanh());
                y
            }
            At::Layer(2) => y * kept::<Stream>(),
            _ => y,
        },
        "`first` has computed is used in `blocks.2`",
    ),
    (
        |at, _, y| match at {
            At::First => {
                let inner = y.scale(0.5);
                keep::<Aliased>(&(Rc::new(move |x: &Stream| x + &inner) as Aliased));
                y
            }
            At::Last => kept::<Aliased>()(&y),
            At::Layer(_) => y,
        },
        "`first` has computed is used in `last`",
    ),
    (
        |at, x, y| match at {
            At::Layer(1) => {
                keep(&(x.clone(), y.clone()));
                y
            }
            At::Last => {
                let (_, layer) = kept::<(Stream, Stream)>();
                y + layer
            }
            _ => y,
        },
        "`blocks.1` has computed is used in `last`",
    ),
    // From layer to layer: its output, its input, and a value inside of it.
    (
        |at, _, y| match at {
            At::Layer(0) => {
                store(&y);
                y
            }
            At::Layer(3) => y + stored(),
            _ => y,
        },
        "`blocks.0` has computed is used in `blocks.3`",
    ),
    (
        |at, x, y| match at {
            At::Layer(0) => {
                store(x);
                y + x
            }
            At::Layer(1) => y + stored(),
            _ => y,
        },
        "has computed is used in `blocks.1`",
    ),
    (
        |at, x, y| match at {
            At::Layer(layer) => {
                let y = if layer > 0 { y + stored() } else { y };
                store(&(x * x));
                y
            }
            _ => y,
        },
        "has computed is used in `blocks.1`",
    ),
    // The input of the last stage, which the stage before has computed.
    (
        |at, x, y| match at {
            At::Layer(3) => {
                store(x);
                y + x
            }
            At::Last => y + stored(),
            _ => y,
        },
        "has computed is used in `last`",
    ),
    // A penalty, which the loss adds.
    (
        |at, _, y| {
            if at == At::Layer(2) {
                PENALTY.set(Some(Loss::mean_of(&(&y * &y))));
            }
            y
        },
        "`blocks.2` has computed is used after the stages",
    ),
    (
        |at, x, y| {
            if at == At::First {
                let shifted = x + &y;
                PENALTY.set(Some(Loss::mean_of(&shifted)));
            }
            y
        },
        "`first` has computed is used after the stages",
    ),
];

fn reset() {
    KEPT.take();
    ANY.take();
    PENALTY.take();
}

#[test]
fn tensors_of_other_stages_are_refused() {
    for (index, (shared, part)) in WRONG.into_iter().enumerate() {
        for case in [ONE, mesh("tp=2"), stage3("fsdp=2")] {
            let run = |rank: &Rank| {
                let _ = step::<Net>(rank, shared);
            };
            let text = on(case, run).expect_err("the tensor is refused");
            assert!(text.contains(part), "{index} on {}: {text}", case.mesh);
        }
        let run = |rank: &Rank| {
            let _ = step::<Recomputed>(rank, shared);
        };
        let text = on(ONE, run).expect_err("the tensor is refused");
        assert!(text.contains("computed"), "{index} with recomputation: {text}");
        let run = |rank: &Rank| {
            let _ = scheduled(rank, 1, shared);
        };
        let text = on(ONE, run).expect_err("the tensor is refused");
        assert!(text.contains(part), "{index} by a schedule: {text}");
    }
    reset();
}

/// Tensors and numbers that stages may keep.
const RIGHT: [Shared; 6] = [
    |_, _, y| y,
    // Within a layer.
    |_, x, y| {
        store(&(x * &y));
        y + stored()
    },
    // A constant, which each rank makes when it first needs it.
    |_, x, y| {
        let made = || Stream::from_fn(x.rank(), &[4, 6], |at| 1.0 / (1 + at[1]) as f32);
        let mask: Stream = ANY.with_borrow_mut(|any| {
            let kept = any.get_or_insert_with(|| Rc::new(made().scale(2.0)));
            kept.downcast_ref::<Stream>().expect("the mask").clone()
        });
        y * mask
    },
    // Numbers that are looked at, and no part of a result.
    |_, x, y| {
        let largest = x.rank().evaluate(|| y.gather_to_vec().into_iter().fold(0.0, f32::max));
        assert!(largest.is_finite());
        y
    },
    // A tensor that nothing reads in another stage.
    |_, _, y| {
        store(&y);
        y.tanh()
    },
    // The penalty of the last layer of a rank only, that no loss takes.
    |_, _, y| {
        let _ = Loss::mean_of(&y);
        y
    },
];

#[test]
fn right_stages_are_not_refused() {
    let cases: [MeshCase; 4] =
        [mesh("tp=2"), mesh("dp=2"), stage3("fsdp=2"), stage3("fsdp=2,tp=2")];
    for (index, shared) in RIGHT.into_iter().enumerate() {
        let plain = |rank: &Rank| {
            reset();
            step::<Net>(rank, shared)
        };
        assert_parity_on(&format!("stages {index}"), &cases, plain);
        let recomputed = |rank: &Rank| {
            reset();
            step::<Recomputed>(rank, shared)
        };
        assert_parity_on(&format!("recomputed stages {index}"), &cases, recomputed);
        let by_schedule = |case: MeshCase, ranks: usize| {
            let run = |rank: &Rank| {
                reset();
                scheduled(rank, ranks, shared)
            };
            on(case, run).unwrap().into_iter().flatten().collect::<Numbers>()
        };
        let expected = by_schedule(ONE, 1);
        for (name, gradient) in by_schedule(mesh("pp=2"), 2) {
            let distance = meshwright_tests::compare::distance(&gradient, &expected[&name]);
            assert!(distance < 1e-5, "{index}: `{name}` by {distance}");
        }
    }
}

/// The number of a layer when it is built.
type Counter = fn(&Builder<'_>) -> usize;

thread_local! {
    static NUMBER: Cell<Counter> = const { Cell::new(|_| 0) };
    static COUNT: Cell<usize> = const { Cell::new(0) };
    static SHOWN: Cell<bool> = const { Cell::new(true) };
    static COUNTS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// A layer with a number that its initialization follows from, if it is shown.
struct Numbered {
    shift: Param<(Hidden,)>,
    number: usize,
}

impl Build for Numbered {
    fn build(builder: &mut Builder<'_>) -> Self {
        let number = NUMBER.get()(builder);
        let std = if SHOWN.get() { 0.1 / (1 + number) as f32 } else { 0.1 };
        Numbered { shift: builder.param("shift", Init::Normal(std)), number }
    }
}

#[model]
struct Shifted {
    shift: Numbered,
}

#[forward]
impl Shifted {
    fn forward(&self, x: &Stream) -> Stream {
        x + &self.shift.shift
    }
}

#[model]
struct Counted {
    #[pipeline_stage]
    blocks: Stack<Shifted>,
}

#[forward]
impl Counted {
    fn forward(&self, x: &Stream) -> Stream;
}

fn next<T>(of: impl FnOnce(usize) -> T) -> T {
    let count = COUNT.get();
    COUNT.set(count + 1);
    of(count)
}

/// Builds the model on one rank, or its stages, and returns the numbers of the layers.
fn build_counted(rank: &Rank, ranks: usize, counter: Counter) -> Result<Vec<usize>, String> {
    NUMBER.set(counter);
    COUNT.set(0);
    COUNTS.take();
    let numbers = |model: &Counted| {
        model.blocks.layers().iter().map(|block| block.shift.number).collect::<Vec<_>>()
    };
    if ranks == 1 {
        let built = build::<Counted>(rank, &sizes()).map_err(|error| error.to_string())?;
        return Ok(numbers(&built.model));
    }
    let placement: Vec<usize> = (0..ranks).collect();
    let request = StageRequest { placement: &placement, cut: &StageCut::Even, seq: 1 };
    let plan = plan_stages::<Counted>(rank, &sizes(), &request).map_err(|e| e.to_string())?;
    let built = build_stages::<Counted>(rank, &sizes(), &plan).map_err(|e| e.to_string())?;
    Ok(numbers(&built.model))
}

#[test]
fn counters_of_builds_are_refused() {
    const WRONG: [Counter; 4] = [
        |_| COUNT.replace(COUNT.get() + 1),
        |_| next(|count| 2 * count),
        |builder| {
            COUNTS.with_borrow_mut(|fields| {
                fields.push(builder.site().field().to_owned());
                fields.len()
            })
        },
        |_| {
            let count = || COUNT.replace(COUNT.get() + 1);
            count() % 3
        },
    ];
    for (ranks, case) in [(1, ONE), (1, mesh("tp=2")), (2, mesh("pp=2"))] {
        for counter in WRONG {
            for outcome in on(case, |rank| build_counted(rank, ranks, counter)).unwrap() {
                let text = outcome.expect_err("the counter is refused");
                assert!(text.contains("a model is declared several times"), "{text}");
                assert!(text.contains("builder.layer_index()"), "{text}");
            }
        }
        let by_index: Counter = |builder| builder.layer_index().unwrap_or_default();
        let found = on(case, |rank| build_counted(rank, ranks, by_index)).unwrap().remove(0);
        assert_eq!(found, Ok(vec![0, 1, 2, 3]));
        // Numbers that no declaration shows are the same on every mesh, since each declares the model twice.
        let hidden = |rank: &Rank| {
            SHOWN.set(false);
            let build = |_| build_counted(rank, ranks, WRONG[0]).unwrap();
            let numbers: Vec<_> = (0..2).map(build).collect();
            SHOWN.set(true);
            numbers
        };
        assert_eq!(on(case, hidden).unwrap().remove(0), [[4, 5, 6, 7], [4, 5, 6, 7]]);
    }
}

#[model]
struct NoLayer {
    layer: LayerIndex,
    mix: Linear<Hidden, Hidden>,
}

#[forward]
impl NoLayer {
    fn forward(&self, x: &Stream) -> Stream {
        self.mix.forward(x).scale(self.layer.get() as f32)
    }
}

#[test]
fn a_layer_index_needs_a_stack() {
    let run = |rank: &Rank| build::<NoLayer>(rank, &sizes()).err().unwrap().to_string();
    let text = on(ONE, run).unwrap().remove(0);
    assert!(
        text.contains("`layer`: is the index of a layer, but no `Stack` contains it"),
        "{text}"
    );
}

#[test]
fn units_are_selected_by_their_path() {
    for case in [ONE, mesh("tp=2"), stage3("fsdp=2")] {
        on(case, |rank| {
            let built = build::<Net>(rank, &sizes()).unwrap();
            let names = |path: &str| {
                let units = built.units_of(path);
                units.iter().map(|unit| unit.name().to_owned()).collect::<Vec<_>>()
            };
            assert_eq!(names("blocks").len(), 4);
            assert_eq!(names("blocks.2"), ["blocks.2"]);
            Sgd::new(rank, &built.units_of("last"), SgdOptions::default());
            Sgd::new(rank, &built.units, SgdOptions::default());
        })
        .unwrap();
        // By position, in the ways of a program that has two optimizers.
        let wrong: [fn(&Rank, &meshwright::nn::Built<Net>); 4] = [
            |rank, built| drop(Sgd::new(rank, &built.units[..1], SgdOptions::default())),
            |rank, built| {
                let (_, rest) = built.units.split_first().unwrap();
                drop(Sgd::new(rank, rest, SgdOptions::default()));
            },
            |rank, built| {
                let last: Vec<_> = built.units.iter().rev().take(1).cloned().collect();
                drop(Sgd::new(rank, &last, SgdOptions::default()));
            },
            |rank, built| {
                let half = built.units.len() / 2;
                drop(Sgd::new(rank, &built.units[half..], SgdOptions::default()));
            },
        ];
        for program in wrong {
            let text = on(case, |rank| program(rank, &build::<Net>(rank, &sizes()).unwrap()));
            let text = text.expect_err("the position is refused");
            assert!(text.contains("was not selected by its path"), "{text}");
        }
    }
}

//! Auxiliary losses that are attached to a tensor: the gradients of a penalty on the loss, on every mesh.

use std::cell::Cell;
use std::rc::Rc;

use meshwright::nn::{Built, RecomputeOverride};
use meshwright::prelude::*;
use meshwright::tensor::{ForwardPass, StepCount, Unit, WeightGradients};
use meshwright_tests::compare::distance;

use super::harness::{
    MESH_CASES, MeshCase, Numbers, ONE, OTHER_MESH_CASES, built, gradients_of, mesh, on, refused,
    stage3,
};
use super::net::{Batch, Batched, Ffn, Hidden, Seq, Vocab, micro_batch, sizes};

type Stream = Tensor<(Batch, Seq, Hidden)>;
type PerToken = Tensor<(Batch, Seq)>;

/// The stream, and the penalties of its tokens so far.
type Flow = (Stream, PerToken);

/// Ways in which layers add their terms to what is differentiated.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Terms {
    /// They travel to the loss, which takes them by `with_penalty`.
    Travel,
    /// They are attached to the result of the layer.
    Attached,
    /// They are attached to a tensor that is dropped.
    Dropped,
    /// There are none.
    Absent,
}

thread_local! {
    static TERMS: Cell<Terms> = const { Cell::new(Terms::Absent) };
}

/// A layer with terms that are alike on all ranks of `tp`, split over positions, and split over features.
#[model]
struct Layer {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
    alike: Linear<Hidden, Hidden>,
    split: Linear<Hidden, Hidden>,
}

#[forward]
impl Layer {
    fn forward(&self, (x, penalties): &Flow) -> Flow {
        let inside = self.up.forward(x).silu();
        let y = x + self.down.forward(&inside);
        let alike = self.alike.forward(x).tanh().square().mean(Hidden) * 0.7;
        let split = self.split.forward(&x.slice(Seq, Tp)).square().mean(Hidden) * 0.3;
        let features = inside.square() * 0.1;
        let attach = |y: Stream| {
            y.with_auxiliary_loss(&alike).with_auxiliary_loss(&split).with_auxiliary_loss(&features)
        };
        match TERMS.get() {
            Terms::Travel => {
                let own = &alike + split.gather(Seq) + features.sum(Ffn).all_reduce();
                (y, penalties + own)
            }
            Terms::Attached => (attach(y), penalties.clone()),
            Terms::Dropped => {
                drop(attach(y.clone()));
                (y, penalties.clone())
            }
            Terms::Absent => (y, penalties.clone()),
        }
    }
}

#[model]
struct Lm {
    embed: Embedding<Vocab, Hidden>,
    blocks: Stack<Layer>,
    /// Applied twice.
    shared: Layer,
    #[recompute(offload)]
    last: Layer,
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

impl Lm {
    fn start(&self, tokens: &Tokens<(Batch, Seq)>) -> Flow {
        let x = self.embed.forward(tokens);
        let none = Tensor::from_fn(x.rank(), &x.sizes()[..2], |_| 0.0);
        (x, none)
    }

    fn first(&self, flow: &Flow) -> Flow {
        self.shared.forward(&self.shared.forward(&self.blocks.forward(flow)))
    }

    fn end(&self, flow: &Flow, batch: &Batched) -> Loss<(Batch, Seq)> {
        let (x, penalties) = self.last.forward(flow);
        self.head.loss(&x, &batch.targets).with_penalty(&penalties)
    }

    fn loss(&self, batch: &Batched) -> Loss<(Batch, Seq)> {
        self.end(&self.first(&self.start(&batch.tokens)), batch)
    }
}

const BATCH: (usize, usize) = (8, 6);

fn model(rank: &Rank, recompute: Option<RecomputeOverride>) -> Built<Lm> {
    let mut sizes = sizes();
    sizes.recompute = recompute;
    built(rank, &sizes)
}

type Program = fn(&Rank, &Built<Lm>) -> Numbers;

fn run(rank: &Rank, terms: Terms, recompute: bool, program: Program) -> Numbers {
    TERMS.set(terms);
    let policy = recompute.then_some(RecomputeOverride::Full);
    program(rank, &model(rank, policy))
}

fn largest_distance(got: &Numbers, expected: &Numbers) -> f64 {
    assert!(got.keys().eq(expected.keys()), "{:?}", got.keys());
    let distances = got.iter().map(|(name, numbers)| distance(numbers, &expected[name]));
    distances.fold(0.0, f64::max)
}

fn cases() -> impl Iterator<Item = MeshCase> {
    let others = OTHER_MESH_CASES.into_iter().filter(|case| !case.mesh.contains("cp"));
    [ONE].into_iter().chain(MESH_CASES).chain(others)
}

/// Runs a program on every mesh with `terms`, and compares it with one rank that has those of `expected`.
#[track_caller]
fn assert_same(name: &str, program: Program, terms: Terms, expected: Terms) {
    let alone = |terms| on(ONE, |rank| run(rank, terms, false, program)).unwrap().remove(0);
    let (expected, without) = (alone(expected), alone(Terms::Absent));
    let has_terms = terms == Terms::Attached;
    assert_eq!(largest_distance(&without, &expected) > 1e-2, has_terms, "{name}");
    for (case, recompute) in cases().flat_map(|case| [(case, false), (case, true)]) {
        let found = on(case, |rank| run(rank, terms, recompute, program));
        for got in found.unwrap_or_else(|error| panic!("{name} on {}: {error}", case.mesh)) {
            let distance = largest_distance(&got, &expected);
            assert!(distance < 3e-5, "{name} on {}, {recompute}: by {distance}", case.mesh);
        }
    }
}

fn batch(rank: &Rank, index: usize, count: usize) -> Batched {
    micro_batch(rank, BATCH, (index, count), true)
}

/// Returns the weight of the loss of a micro-batch.
fn weight(index: usize) -> f32 {
    0.5 - 2.0 * index as f32
}

fn count_of_step(rank: &Rank) -> StepCount<(Batch, Seq)> {
    StepCount::new(rank, (0..2).map(|index| batch(rank, index, 2).counted).sum())
}

/// Runs passes through the first layers, and through the last, of two micro-batches; all forward passes come first.
/// Losses have weights if `is_weighted`, and weight gradients are computed at the end if `defers`.
fn passes(rank: &Rank, built: &Built<Lm>, is_weighted: bool, defers: bool) -> Numbers {
    let model = &built.model;
    let count = is_weighted.then(|| count_of_step(rank));
    let record = |index| {
        let batch = batch(rank, index, 2);
        let start = |tokens: &Tokens<(Batch, Seq)>| model.first(&model.start(tokens));
        let (flow, first) = ForwardPass::record(rank, &batch.tokens, start);
        let (out, mut last) = ForwardPass::record(rank, &flow, |flow| model.last.forward(flow));
        let loss =
            |(x, penalties): &Flow| model.head.loss(x, &batch.targets).with_penalty(penalties);
        match &count {
            Some(count) => last.add_loss(&out, |out| loss(out).weighted_over(weight(index), count)),
            None => last.add_loss(&out, loss),
        }
        (first, last)
    };
    let recorded = [0, 1].map(record);
    let mut gradients = Gradients::of_passes(rank);
    let mut deferred = Vec::new();
    for (index, (first, last)) in recorded.into_iter().enumerate() {
        let complete: &[Rc<Unit>] = if index == 1 { &built.units } else { &[] };
        let when = |complete| {
            if defers { WeightGradients::Deferred } else { WeightGradients::Now { complete } }
        };
        let (of_flow, of_last) = last.backward(&mut gradients, None, when(&[]));
        let (_, of_first) = first.backward(&mut gradients, Some(of_flow), when(complete));
        deferred.extend([of_last, of_first].into_iter().flatten());
    }
    let last = deferred.len().saturating_sub(1);
    for (index, deferred) in deferred.into_iter().enumerate() {
        deferred.compute_gradients(if index == last { &built.units } else { &[] });
    }
    gradients_of(built, &gradients.complete().reduce())
}

const PROGRAMS: [(&str, Program); 11] = [
    ("one batch", |rank, built| {
        let loss = built.model.loss(&batch(rank, 0, 1));
        gradients_of(built, &loss.backward().reduce())
    }),
    ("accumulation", |rank, built| {
        let [first, second] = [0, 1].map(|index| built.model.loss(&batch(rank, index, 2)));
        gradients_of(built, &first.accumulate().backward(second).reduce())
    }),
    ("the sum of two losses", |rank, built| {
        let [first, second] = [0, 1].map(|index| built.model.loss(&batch(rank, index, 2)));
        gradients_of(built, &(first + second).backward().reduce())
    }),
    ("losses of two shapes", |rank, built| {
        let batch = batch(rank, 0, 1);
        let flow = built.model.first(&built.model.start(&batch.tokens));
        let losses = built.model.end(&flow, &batch).and(Loss::mean_of(&flow.0.mean(Seq).tanh()));
        gradients_of(built, &losses.backward().reduce())
    }),
    ("a weight", |rank, built| {
        let loss = built.model.loss(&batch(rank, 0, 1)).weighted(-0.6);
        gradients_of(built, &loss.backward().reduce())
    }),
    ("weighted micro-batches", |rank, built| {
        let count = count_of_step(rank);
        let loss = |index| {
            let loss = built.model.loss(&batch(rank, index, 2));
            loss.weighted_over(weight(index), &count)
        };
        let gradients = loss(0).accumulate();
        gradients_of(built, &gradients.backward(loss(1)).reduce())
    }),
    ("passes", |rank, built| passes(rank, built, false, false)),
    ("deferred passes", |rank, built| passes(rank, built, false, true)),
    ("weighted passes", |rank, built| passes(rank, built, true, false)),
    ("weighted and deferred passes", |rank, built| passes(rank, built, true, true)),
    ("an evaluation", |rank, built| {
        let batch = batch(rank, 0, 1);
        let evaluate = || rank.evaluate(|| built.model.loss(&batch).reduce().value());
        let before = evaluate();
        let loss = built.model.loss(&batch);
        let mut numbers = gradients_of(built, &loss.backward().reduce());
        assert_eq!(before, evaluate());
        numbers.insert("loss".into(), vec![before as f32]);
        numbers
    }),
];

#[test]
fn attached_terms_are_penalties() {
    for (name, program) in PROGRAMS {
        assert_same(name, program, Terms::Attached, Terms::Travel);
    }
}

/// A loss that does not depend on the tensor has no auxiliary loss.
#[test]
fn terms_on_a_dropped_tensor_are_dropped() {
    let (name, program) = PROGRAMS[0];
    assert_same(name, program, Terms::Dropped, Terms::Absent);
}

/// Other models keep no gradient of the terms.
#[test]
fn terms_of_frozen_layers_have_no_gradient() {
    let of_shared = |rank: &Rank, built: &Built<Lm>| {
        let loss = built.model.loss(&batch(rank, 0, 1));
        let gradients = loss.only(&built.units_of("shared")).backward().reduce();
        let params = built.params().into_iter();
        let shared = params.filter(|param| param.path().starts_with("shared."));
        shared.map(|param| (param.path().to_owned(), gradients.gather(&param))).collect()
    };
    assert_same("one field", of_shared, Terms::Attached, Terms::Travel);
}

/// A tensor without a gradient has that of the terms that are attached to it.
#[test]
fn terms_on_a_constant_have_a_gradient() {
    let run = |rank: &Rank, attached: bool| {
        let built = model(rank, None);
        let x = built.model.embed.forward(&batch(rank, 0, 1).tokens);
        let terms = built.model.shared.alike.forward(&x).square();
        let ones = Tensor::from_fn(rank, &[BATCH.0, BATCH.1, 8], |_| 1.0);
        let ones: Stream = if attached { ones.with_auxiliary_loss(&terms) } else { ones };
        let loss = Loss::mean_of(&(x * ones));
        gradients_of(&built, &loss.backward().reduce())
    };
    let [without, expected] =
        [false, true].map(|attached| on(ONE, |rank| run(rank, attached)).unwrap().remove(0));
    assert!(largest_distance(&without, &expected) > 1e-2);
    for case in cases() {
        for got in on(case, |rank| run(rank, true)).unwrap() {
            assert!(largest_distance(&got, &expected) < 3e-5, "{}", case.mesh);
        }
    }
}

#[model]
struct Decayed {
    embed: Embedding<Vocab, Hidden>,
    gain: Param<(Hidden,)>,
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

/// Terms that no token has count once, on any number of data ranks.
#[test]
fn terms_of_parameters_count_once() {
    let run = |rank: &Rank, attached: bool| {
        let built: Built<Decayed> = built(rank, &sizes());
        let Decayed { embed, gain, head, .. } = &built.model;
        let batch = batch(rank, 0, 1);
        let x = embed.forward(&batch.tokens) * gain;
        let terms = (Tensor::<(Hidden,)>::from_fn(rank, &[8], |_| 0.5) + gain).square();
        let x = if attached { x.with_auxiliary_loss(&terms) } else { x };
        gradients_of(&built, &head.loss(&x, &batch.targets).backward().reduce())
    };
    let [without, expected] =
        [false, true].map(|attached| on(ONE, |rank| run(rank, attached)).unwrap().remove(0));
    assert!(largest_distance(&without, &expected) > 1e-2);
    for case in cases() {
        for got in on(case, |rank| run(rank, true)).unwrap() {
            assert!(largest_distance(&got, &expected) < 3e-5, "{}", case.mesh);
        }
    }
}

#[test]
fn terms_of_another_micro_batch_are_refused() {
    for case in [ONE, mesh("dp=2"), mesh("tp=2"), stage3("fsdp=2")] {
        let parts = ["a tensor of another micro-batch"];
        refused(case, file!(), &parts, |rank, spot| {
            let built = model(rank, None);
            let [own, other] =
                [0, 1].map(|index| built.model.embed.forward(&batch(rank, index, 2).tokens));
            let terms = other.square();
            spot.next(line!());
            let _ = own.with_auxiliary_loss(&terms);
        });
    }
}

/// The auxiliary loss would have the weight of one of them.
#[test]
fn losses_with_different_weights_are_refused() {
    for case in [ONE, mesh("dp=2"), mesh("tp=2"), stage3("fsdp=2")] {
        for recompute in [None, Some(RecomputeOverride::Full)] {
            let parts = ["different weights or counts", "auxiliary.rs:", "with_penalty"];
            refused(case, file!(), &parts, |rank, spot| {
                TERMS.set(Terms::Attached);
                let built = model(rank, recompute);
                let batch = batch(rank, 0, 1);
                let flow = built.model.first(&built.model.start(&batch.tokens));
                let squares = Loss::mean_of(&flow.0.square()).weighted(0.1);
                let objective = built.model.end(&flow, &batch).weighted(1.0) + squares;
                spot.next(line!());
                let _ = objective.backward();
            });
        }
    }
}

/// Chooses the terms that a rank attaches.
type Choose = fn(&Rank, PerToken) -> Option<PerToken>;

/// Ranks with the same part of the batch attach other terms, or data ranks attach none.
#[test]
fn ranks_attach_the_same_losses() {
    let programs: [(&str, Choose); 2] = [
        ("the weighted or auxiliary losses", |rank, terms| (rank.index() == 0).then_some(terms)),
        ("are declared the same", |rank, terms| {
            let other = terms.exp();
            Some(if rank.index() == 0 { terms } else { other })
        }),
    ];
    for (message, choose) in programs {
        for case in [mesh("tp=2"), stage3("fsdp=2,tp=2")] {
            refused(case, file!(), &[message], |rank, spot| {
                let built = model(rank, None);
                let batch = batch(rank, 0, 1);
                let x = built.model.embed.forward(&batch.tokens);
                let y = built.model.shared.alike.forward(&x);
                let y = match choose(rank, x.square().mean(Hidden)) {
                    Some(terms) => y.with_auxiliary_loss(&terms),
                    None => y,
                };
                let loss = built.model.head.loss(&y, &batch.targets);
                spot.next(line!());
                let _ = loss.backward().reduce();
            });
        }
    }
}

/// Backward keeps neither the terms nor a copy of the tensor: only what the terms are computed from.
#[test]
fn attached_terms_take_no_memory() {
    let bytes = on(ONE, |rank| {
        let built = model(rank, None);
        let live = || rank.allocator().live().map(|(_, bytes)| bytes).sum::<usize>();
        let x = built.model.embed.forward(&batch(rank, 0, 1).tokens);
        let y = built.model.shared.alike.forward(&x);
        y.to_local_vec();
        let before = live();
        let terms = y.square();
        let y = y.with_auxiliary_loss(&terms);
        let with_terms = live();
        drop(terms);
        let after = live();
        drop((x, y));
        [before, with_terms - before, after]
    });
    let [before, terms, after] = bytes.unwrap()[0];
    assert_eq!((before, terms), (after, BATCH.0 * BATCH.1 * 8 * size_of::<f32>()));
}

//! Regression tests of valid programs: one layer on different splits, tensors created in micro-batches, recomputation.

use std::cell::RefCell;

use meshwright::layout::AxisSet;
use meshwright::prelude::*;
use meshwright::tensor::{Objective, Pooled};
use meshwright_tests::compare::distance;

use super::harness::{
    Numbers, Steps, assert_mesh_parity, built, mesh, numbers, on, refused, stage3,
};
use super::net::*;

const FILE: &str = "tests/meshes/promise/micro.rs";

#[track_caller]
fn check(
    name: &str,
    sizes: &Sizes,
    alike: bool,
    loss: impl Fn(&Net, &Batched) -> Objective<Pooled> + Sync,
) {
    for (count, eager) in [(1, true), (2, false), (3, false), (2, true), (3, true)] {
        assert_mesh_parity(&format!("{name}, {count} micro-batches, {eager}"), |rank| {
            let net = built::<Net>(rank, sizes);
            let mut steps = if eager { Steps::one_by_one(count) } else { Steps::default() };
            for index in 0..count {
                rank.set_step(index as u64);
                steps.add(loss(&net.model, &micro_batch(rank, (12, 7), (index, count), alike)));
            }
            numbers(&net, steps)
        });
    }
}

fn dropping() -> Sizes {
    let mut sizes = sizes();
    sizes.dropout = 0.4;
    sizes
}

/// Applies a layer to any split of the stream.
fn apply<S, L>(layer: &L, x: &Tensor<S>) -> Objective<Pooled>
where
    S: meshwright::layout::Dims,
    L: Layer<Tensor<S>, Out = Tensor<S>>,
{
    let y = layer.forward(x);
    Loss::mean_of(&(&y * &y)).into()
}

/// Layers whose gradients are summed over tp in one micro-batch, and not in the next.
#[test]
fn a_layer_on_whole_and_split_streams() {
    macro_rules! each {
        ($($layer:ident)*) => {$(
            check(stringify!($layer), &sizes(), true, |net, batch| {
                let x = net.embed.forward(&batch.tokens);
                match batch.index {
                    0 => apply(&net.$layer, &x),
                    1 => apply(&net.$layer, &x.slice(Seq, Tp)),
                    _ => apply(&net.$layer, &x.slice(Batch, Tp)),
                }
            });
            // In the other order, both in one micro-batch.
            check(stringify!($layer), &sizes(), true, |net, batch| {
                let x = net.embed.forward(&batch.tokens);
                let y = net.$layer.forward(&x.slice(Seq, Tp)).gather(Seq) + net.$layer.forward(&x);
                Loss::mean_of(&(&y * &x)).into()
            });
        )*};
    }
    each! { norm layer_norm plain bias }
}

/// Parameters as fields, used in a helper and in an iterator.
#[test]
fn a_parameter_on_whole_and_split_streams() {
    check("a gain", &sizes(), true, |net, batch| {
        let x = net.embed.forward(&batch.tokens);
        let scaled = |split: bool| {
            if split {
                Objective::from(Loss::mean_of(&(x.slice(Seq, Tp) * &net.gain).tanh()))
            } else {
                Objective::from(Loss::mean_of(&(&x * &net.gain).tanh()))
            }
        };
        scaled(batch.index % 2 == 1)
    });
    check("a weight", &sizes(), true, |net, batch| {
        let x = net.embed.forward(&batch.tokens);
        let all = [true, false].into_iter().filter(|split| *split == (batch.index % 2 == 0));
        let losses = all.map(|split| {
            if split {
                Objective::from(Loss::mean_of(&x.slice(Seq, Tp).contract(&net.own).tanh()))
            } else {
                Objective::from(Loss::mean_of(&x.contract(&net.own).tanh()))
            }
        });
        losses.last().expect("one of the two")
    });
}

/// A layer applied to split positions in one step only; the next step reduces over the same ranks.
#[test]
fn a_layer_on_whole_streams_in_later_steps() {
    assert_mesh_parity("later steps", |rank| {
        let net = built::<Net>(rank, &sizes());
        let mut all = Numbers::new();
        for step in 0..4 {
            let batch = micro_batch(rank, (8, 6), (0, 1), false);
            let x = net.model.embed.forward(&batch.tokens);
            let losses = match step % 2 {
                0 => apply(&net.model.plain, &x),
                _ => apply(&net.model.plain, &x.slice(Seq, Tp)),
            };
            let mut steps = Steps::default();
            steps.add(losses);
            for (name, values) in numbers(&net, steps) {
                all.insert(format!("{name} in step {step}"), values);
            }
        }
        all
    });
}

type Mask<S> = Tensor<S>;

/// Creates a mask with the shape of any tensor.
fn mask<S: meshwright::layout::Shape>(x: &Tensor<S>) -> Mask<S> {
    Tensor::from_fn(x.rank(), &x.sizes(), |at| (at.iter().sum::<usize>() % 3) as f32 - 1.0)
}

struct Masked<'a> {
    net: &'a Net,
    mask: Option<Stream>,
}

impl Masked<'_> {
    fn forward(&self, x: &Stream) -> Stream {
        let x = self.net.plain.forward(x);
        self.mask.as_ref().map_or_else(|| x.clone(), |mask| &x * mask)
    }
}

#[test]
fn tensors_created_in_micro_batches() {
    check("directly", &sizes(), false, |net, batch| {
        let x = net.embed.forward(&batch.tokens);
        let mask: Stream =
            Tensor::from_fn(x.rank(), &x.sizes(), |at| (at[0] * 5 + at[1] + at[2]) as f32 * 0.01);
        Loss::mean_of(&(net.plain.forward(&x) * mask)).into()
    });
    check("generically", &sizes(), false, |net, batch| {
        let x = net.plain.forward(&net.embed.forward(&batch.tokens));
        let inner = net.up.forward(&x);
        let split = x.slice(Seq, Tp);
        let rows = x.slice(Batch, Tp);
        Loss::mean_of(&(&x * mask(&x)))
            .and(Loss::mean_of(&(&inner * mask(&inner))))
            .and(Loss::mean_of(&(&split * mask(&split))))
            .and(Loss::mean_of(&(&rows * mask(&rows))))
    });
    check("in a field", &sizes(), false, |net, batch| {
        let x = net.embed.forward(&batch.tokens);
        let masked = Masked { net, mask: Some(mask(&x)) };
        Loss::mean_of(&masked.forward(&x)).into()
    });
    check("in a closure", &sizes(), false, |net, batch| {
        let x = net.embed.forward(&batch.tokens);
        let shift = |x: &Stream, by: f32| x + x.like(|_| by);
        let y = [0.5, -1.0].into_iter().fold(x, |x, by| net.plain.forward(&shift(&x, by)).tanh());
        Loss::mean_of(&y).into()
    });
}

/// The mean over the samples of a micro-batch is divided by their number, on every mesh.
#[test]
fn a_mean_of_samples_is_that_of_the_micro_batch() {
    assert_mesh_parity("a mean of ones", |rank| {
        let mut all = Numbers::new();
        for count in [1, 2, 3] {
            for index in 0..count {
                let batch = micro_batch(rank, (12, 4), (index, count), true);
                let ones = Tensor::<(Batch, Seq)>::from_fn(batch.tokens.rank(), &[12, 4], |_| 1.0);
                let mean = ones.mean(Batch).all_reduce().to_local_vec();
                assert_eq!(mean, [1.0; 4], "micro-batch {index} of {count}");
                let halves = ones.slice(Seq, Tp).mean(Batch).all_reduce().gather_to_vec();
                assert_eq!(halves, [1.0; 4], "micro-batch {index} of {count}");
                all.insert(format!("{index} of {count}"), mean);
            }
        }
        all
    });
}

#[test]
fn means_over_the_samples_of_micro_batches() {
    check("directly", &sizes(), true, |net, batch| {
        let x = net.embed.forward(&batch.tokens);
        let mean = x.mean(Batch).all_reduce();
        Loss::mean_of(&(&mean * &mean * &net.gain)).into()
    });
    check("after layers", &sizes(), true, |net, batch| {
        let x = net.blocks.forward(&net.embed.forward(&batch.tokens));
        let mean = net.norm.forward(&x).mean(Batch).start_all_reduce();
        let y = net.plain.forward(&mean.wait());
        Loss::mean_of(&(&y * &y)).into()
    });
    check("twice", &sizes(), true, |net, batch| {
        let x = net.embed.forward(&batch.tokens);
        let means = [&x, &net.plain.forward(&x)].map(|x| x.mean(Batch).all_reduce());
        let squares = (&x * &x).mean(Batch).all_reduce();
        Loss::mean_of(&(&means[0] * &means[1] - squares)).into()
    });
    check("of a recomputed layer's input and result", &sizes(), true, |net, batch| {
        let x = net.embed.forward(&batch.tokens);
        let places: Stream =
            Tensor::from_fn(x.rank(), &x.sizes(), |at| (at[1] + at[2]) as f32 * 0.1);
        let y = net.blocks.forward(&(&x * places));
        let variance = (&y * &y).mean(Batch) - (&y * &x).mean(Batch) * 0.5;
        Loss::mean_of(&variance.all_reduce().tanh()).into()
    });
}

/// Dropout in recomputed layers, with another step for each micro-batch, and two forward passes before a backward.
#[test]
fn dropout_is_recomputed_as_it_was() {
    check("recomputed dropout", &dropping(), false, |net, batch| {
        // Rows draw by their index in the batch, and all micro-batches but the first are of other steps.
        let x = net.embed.forward(&batch.tokens);
        x.rank().set_step(0);
        let y = net.blocks.forward(&net.dropout.forward(&x));
        x.rank().set_step(17);
        Loss::mean_of(&(&y * &y)).into()
    });
}

/// The mask of a step is that of the step, recomputed or not.
#[test]
fn recomputation_changes_no_bit() {
    let run = |recompute| {
        let found = super::harness::on(mesh("tp=2"), |rank| {
            let mut sizes = dropping();
            sizes.recompute = recompute;
            let net = built::<Net>(rank, &sizes);
            let mut steps = Steps::default();
            for index in 0..2 {
                rank.set_step(index);
                let batch = micro_batch(rank, (8, 6), (index as usize, 2), false);
                let x = net.model.blocks.forward(&net.model.embed.forward(&batch.tokens));
                steps.add(Loss::mean_of(&(&x * &x)));
            }
            rank.set_step(9);
            numbers(&net, steps)
        });
        found.unwrap_or_else(|error| panic!("{error}"))
    };
    let kept = run(Some(meshwright::nn::RecomputeOverride::Off));
    assert_eq!(kept, run(None));
}

/// A model whose segments leak tensors.
#[model]
pub struct Leaking {
    embed: Embedding<Vocab, Hidden>,
    #[recompute]
    blocks: Stack<Leak>,
}

#[model]
pub struct Leak {
    plain: Linear<Hidden, Hidden>,
    gain: Param<(Hidden,)>,
}

thread_local! {
    static LEFT: RefCell<Vec<Stream>> = const { RefCell::new(Vec::new()) };
    static LOSSES: RefCell<Vec<Loss<(Batch, Seq, Hidden)>>> = const { RefCell::new(Vec::new()) };
    static ARRIVING: RefCell<Vec<InFlight<Stream>>> = const { RefCell::new(Vec::new()) };
    static ENTERS: RefCell<Option<Stream>> = const { RefCell::new(None) };
    static MODE: RefCell<&'static str> = const { RefCell::new("") };
}

#[forward]
impl Leak {
    fn forward(&self, x: &Stream) -> Stream {
        let y = self.plain.forward(x).tanh();
        let penalty = &y * &y * &self.gain;
        match MODE.with_borrow(|mode| *mode) {
            "tensor" => LEFT.with_borrow_mut(|left| left.push(penalty)),
            "loss" => LOSSES.with_borrow_mut(|left| left.push(Loss::mean_of(&penalty))),
            "in flight" => {
                let gathered = penalty.slice(Seq, Tp).start_gather(Seq);
                ARRIVING.with_borrow_mut(|left| left.push(gathered));
            }
            "enters" => {
                let outer = ENTERS.with_borrow(|outer| outer.clone().expect("set before"));
                return y + outer;
            }
            _ => {}
        }
        y
    }
}

fn leaking(rank: &meshwright::tensor::Rank, mode: &'static str) -> (Leaking, Batched) {
    MODE.set(mode);
    let model = built::<Leaking>(rank, &sizes()).model;
    (model, micro_batch(rank, (8, 6), (0, 1), false))
}

const LEFT_SEGMENT: &[&str] =
    &["computed inside of the recomputed `blocks.0`", "return it from the segment's `forward`"];

#[test]
fn a_tensor_that_leaves_a_segment_is_refused() {
    for case in [mesh("1"), mesh("tp=2"), stage3("fsdp=2")] {
        refused(case, FILE, LEFT_SEGMENT, |rank, spot| {
            let (model, batch) = leaking(rank, "tensor");
            let y = model.blocks.forward(&model.embed.forward(&batch.tokens));
            let left = LEFT.with_borrow_mut(|left| left.remove(0));
            spot.next(line!());
            let y = y + &left;
            Loss::mean_of(&y).backward().reduce().norm()
        });
    }
    refused(mesh("tp=2"), FILE, LEFT_SEGMENT, |rank, spot| {
        let (model, batch) = leaking(rank, "tensor");
        let _ = model.blocks.forward(&model.embed.forward(&batch.tokens));
        let left = LEFT.take();
        spot.next(line!());
        let loss = Loss::mean_of(&left[0]);
        loss.backward().reduce().norm()
    });
}

#[test]
fn a_loss_that_leaves_a_segment_is_refused() {
    for case in [mesh("1"), mesh("tp=2"), stage3("fsdp=2")] {
        refused(case, FILE, LEFT_SEGMENT, |rank, spot| {
            let (model, batch) = leaking(rank, "loss");
            let y = model.blocks.forward(&model.embed.forward(&batch.tokens));
            let penalty = LOSSES.with_borrow_mut(|left| left.remove(0));
            let loss = Loss::mean_of(&y);
            spot.next(line!());
            let loss = loss + penalty;
            loss.backward().reduce().norm()
        });
        refused(case, FILE, LEFT_SEGMENT, |rank, spot| {
            let (model, batch) = leaking(rank, "loss");
            let y = model.blocks.forward(&model.embed.forward(&batch.tokens));
            let penalty = LOSSES.with_borrow_mut(|left| left.remove(0));
            let gradients = Loss::mean_of(&y).accumulate();
            spot.next(line!());
            let gradients = gradients.backward(penalty);
            gradients.reduce().norm()
        });
    }
    refused(mesh("tp=2"), FILE, LEFT_SEGMENT, |rank, spot| {
        let (model, batch) = leaking(rank, "loss");
        let _ = model.blocks.forward(&model.embed.forward(&batch.tokens));
        let penalties = LOSSES.take();
        let penalty = penalties.into_iter().next().expect("left by the first layer");
        spot.next(line!());
        let gradients = penalty.backward();
        gradients.reduce().norm()
    });
}

#[test]
fn gradients_from_outside_a_segment_are_refused() {
    for case in [mesh("1"), mesh("tp=2"), stage3("fsdp=2")] {
        refused(case, FILE, LEFT_SEGMENT, |rank, spot| {
            let (model, batch) = leaking(rank, "in flight");
            let y = model.blocks.forward(&model.embed.forward(&batch.tokens));
            let left = ARRIVING.with_borrow_mut(|left| left.remove(0)).wait();
            spot.next(line!());
            let y = y + &left;
            Loss::mean_of(&y).backward().reduce().norm()
        });
    }
}

#[test]
fn a_tensor_that_enters_a_segment_is_refused() {
    for case in [mesh("1"), mesh("tp=2"), stage3("fsdp=2")] {
        refused(case, FILE, &["no longer recorded", "through its `forward`"], |rank, spot| {
            let (model, batch) = leaking(rank, "enters");
            let x = model.embed.forward(&batch.tokens);
            ENTERS.set(Some(x.tanh()));
            let loss = Loss::mean_of(&model.blocks.forward(&x));
            spot.next(line!());
            let gradients = loss.backward();
            gradients.reduce().norm()
        });
    }
}

/// Constants may be cached by layers.
#[test]
fn constants_leave_segments() {
    assert_mesh_parity("a cached mask", |rank| {
        MODE.set("enters");
        let built = built::<Leaking>(rank, &sizes());
        let batch = micro_batch(rank, (8, 6), (0, 1), false);
        let x = built.model.embed.forward(&batch.tokens);
        ENTERS.set(Some(mask(&x)));
        let mut steps = Steps::default();
        steps.add(Loss::mean_of(&(built.model.blocks.forward(&x) * &x)));
        numbers(&built, steps)
    });
}

/// Backward inside an evaluation computes the same gradients as outside.
#[test]
fn backward_inside_of_an_evaluation() {
    assert_mesh_parity("inside of `evaluate`", |rank| {
        let net = built::<Net>(rank, &dropping());
        let loss = || {
            let batch = micro_batch(rank, (8, 6), (0, 1), false);
            let x = net.model.blocks.forward(&net.model.embed.forward(&batch.tokens));
            Loss::mean_of(&(&x * &x))
        };
        let outside = super::harness::gradients_of(&net, &loss().backward().reduce());
        let recorded = loss();
        let inside = rank.evaluate(|| recorded.backward().reduce());
        assert_eq!(super::harness::gradients_of(&net, &inside), outside);
        let after = super::harness::gradients_of(&net, &loss().backward().reduce());
        assert_eq!(after, outside);
        outside
    });
}

/// Rows of floating-point inputs keep their index in the batch, on every mesh and with any number of micro-batches.
#[test]
fn inputs_of_numbers_in_micro_batches() {
    const BATCH: usize = 12;
    let number = |at: [usize; 3]| ((at[0] * 31 + at[1] * 7 + at[2]) as f32).sin();
    let gradients = |rank: &Rank, count: usize| -> Numbers {
        let net = built::<Net>(rank, &dropping());
        let (at, ranks) = (rank.position(AxisSet::DATA), rank.degree_of(AxisSet::DATA));
        let own = BATCH / ranks;
        let mut steps = Steps::default();
        for index in 0..count {
            let (first, last) = (index * own / count, (index + 1) * own / count);
            let mut block = Vec::new();
            for row in first..last {
                for element in 0..6 * 8 {
                    block.push(number([at * own + row, element / 8, element % 8]));
                }
            }
            let x: Stream = Tensor::from_rows(rank, &[BATCH, 6, 8], first, &block);
            assert_eq!(x.local_extents()[0].local, last - first);
            // A tensor of the model has the rows of the micro-batch.
            let noise: Stream =
                Tensor::from_fn(x.rank(), &[BATCH, 6, 8], |at| number([at[2], at[1], at[0]]));
            let y = net.model.dropout.forward(&net.model.plain.forward(&(x + noise)));
            steps.add(Loss::mean_of(&net.model.norm.forward(&y).tanh()));
        }
        numbers(&net, steps)
    };
    for count in [1, 2, 3] {
        assert_mesh_parity(&format!("{count} micro-batches of numbers"), |rank| {
            gradients(rank, count)
        });
    }
    let found = on(mesh("dp=2"), |rank| [1, 2, 3].map(|count| gradients(rank, count)));
    let found = found.unwrap_or_else(|error| panic!("{error}"));
    for later in &found[0][1..] {
        for (name, of_batch) in found[0][0].iter().filter(|(name, _)| name.starts_with("gradient"))
        {
            let is_noise = of_batch.iter().all(|x| x.abs() < 1e-9);
            assert!(is_noise || distance(&later[name], of_batch) < 1e-5, "{name}");
        }
    }
}

#[test]
fn rows_of_numbers_that_do_not_fit_are_refused() {
    for (first, len, part) in [
        (0, 5, "a block of 5 elements is not made of the rows of [4, 2] from row 0 on"),
        (3, 4, "a block of 4 elements is not made of the rows of [4, 2] from row 3 on"),
    ] {
        refused(mesh("1"), FILE, &[part], |rank, spot| {
            let block = vec![0.0; len];
            spot.next(line!());
            let _: Tensor<(Batch, Hidden)> = Tensor::from_rows(rank, &[4, 2], first, &block);
        });
    }
}

/// Ranks that share rows make a micro-batch of the same ones, of numbers and of token ids.
#[test]
fn other_rows_on_ranks_that_share_them_are_refused() {
    for of_tokens in [false, true] {
        let part = "the first row and the number of rows of (Batch, ";
        refused(mesh("tp=2"), FILE, &[part], |rank, spot| {
            let net = built::<Net>(rank, &sizes());
            let first = rank.index();
            let x: Stream = if of_tokens {
                spot.next(line!());
                let ids: Ids = Tokens::from_rows(rank, &[4, 2], first, &[1, 2]);
                net.model.embed.forward(&ids)
            } else {
                spot.next(line!());
                Tensor::from_rows(rank, &[4, 2, 8], first, &[1.0; 16])
            };
            let loss = Loss::mean_of(&net.model.plain.forward(&x));
            let _ = loss.backward().reduce();
        });
    }
}

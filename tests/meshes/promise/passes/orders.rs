//! Orders of forward and backward passes. Their gradients equal ordinary accumulation's.

use std::rc::Rc;

use meshwright::nn::Built;
use meshwright::prelude::*;
use meshwright::tensor::{ForwardPass, Reduced, Unit, WeightGradients, ZeroStage};
use meshwright_tests::compare::distance;

use super::super::harness::{MeshCase, ONE, built, gradients_of, mesh, on};
use super::super::net::{Batch, Ffn, Hidden, sizes};
use super::Action::{self, B, F, I, W};
use super::{Lm, Run, accumulated, batch, model};

/// Meshes at all ZeRO stages.
pub fn cases() -> Vec<MeshCase> {
    let mut cases = vec![ONE, mesh("dp=2"), mesh("tp=2")];
    for zero in ZeroStage::ALL {
        cases.push(MeshCase { mesh: "fsdp=2", zero });
        cases.push(MeshCase { mesh: "fsdp=2,tp=2", zero });
    }
    cases
}

pub fn numbers(gradients: &Gradients<Reduced>, built: &Built<Lm>) -> Vec<(String, Vec<u32>)> {
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
    gradients_of(built, gradients).into_iter().map(|(name, values)| (name, bits(values))).collect()
}
/// Asserts that `order` has the gradients of ordinary accumulation, to the bit.
#[track_caller]
fn assert_same_bits(name: &str, count: usize, order: &[Action]) {
    for case in cases() {
        let found = on(case, |rank| {
            let built = model(rank, false);
            let expected = numbers(&accumulated(rank, &built, count), &built);
            let found = numbers(&Run::new(rank, &built, count, order).reduce(), &built);
            // Nothing is left behind: ordinary accumulation has the same gradients again.
            let again = numbers(&accumulated(rank, &built, count), &built);
            assert_eq!(expected, again, "{name}: ordinary accumulation after the passes");
            let differing = found.into_iter().zip(expected).filter(|(found, own)| found != own);
            differing.map(|((name, _), _)| name).collect::<Vec<String>>()
        });
        let label = format!("{name} on {} with {}", case.mesh, case.zero);
        for names in found.unwrap_or_else(|error| panic!("{label}: {error}")) {
            assert!(names.is_empty(), "{label}: other bits of {names:?}");
        }
    }
}

/// The order of `micro_batches` micro-batches that makes one chunk follow the other without delay.
fn chunks_in_turn(micro_batches: usize) -> Vec<Action> {
    (0..micro_batches).flat_map(|i| [F(0, i), F(1, i), B(1, i), B(0, i)]).collect()
}

#[test]
fn passes_in_turn_are_accumulation() {
    assert_same_bits("one after the other", 2, &chunks_in_turn(2));
    assert_same_bits("one after the other", 4, &chunks_in_turn(4));
}

/// A weight that both chunks use has the sum of both gradients. From ZeRO stage 2 on, each pass is reduced by itself,
/// and the sum has another order.
#[test]
fn tied_weight_of_two_chunks() {
    for case in cases() {
        let found = on(case, |rank| {
            let built = model(rank, true);
            let expected = gradients_of(&built, &accumulated(rank, &built, 2));
            let order = chunks_in_turn(2);
            let found = gradients_of(&built, &Run::new(rank, &built, 2, &order).reduce());
            let distance = |(name, found): (&String, &Vec<f32>)| {
                (distance(found, &expected[name]), name.clone())
            };
            found.iter().map(distance).collect::<Vec<(f64, String)>>()
        });
        let label = format!("{} with {}", case.mesh, case.zero);
        for (distance, name) in found.unwrap_or_else(|error| panic!("{label}: {error}")).concat() {
            let is_summed_otherwise = case.zero >= ZeroStage::Gradients && name.contains("embed");
            let limit = if is_summed_otherwise { 1e-6 } else { 0.0 };
            assert!(distance <= limit, "{label}: {name} differs by {distance:e}");
        }
    }
}

/// The whole model is one chunk, and its tied weight has both of its gradients in each pass.
#[test]
fn whole_model_as_one_pass() {
    for case in cases() {
        let same = on(case, |rank| {
            let built = model(rank, true);
            let expected = numbers(&accumulated(rank, &built, 2), &built);
            let mut gradients = Gradients::of_passes(rank);
            let batches = [0, 1].map(|i| batch(rank, i, 2));
            let passes = batches.each_ref().map(|batch| {
                ForwardPass::record(rank, &batch.tokens, |tokens| built.model.forward(tokens))
            });
            let complete: [&[Rc<Unit>]; 2] = [&[], &built.units];
            for (((x, mut pass), batch), complete) in passes.into_iter().zip(batches).zip(complete)
            {
                pass.add_loss(&x, |x| built.model.loss(x, &batch.targets));
                pass.backward(&mut gradients, None, WeightGradients::Now { complete });
            }
            expected == numbers(&gradients.complete().reduce(), &built)
        });
        assert_all(case, same);
    }
}

/// Asserts that the program runs, and returns true on every rank.
#[track_caller]
pub fn assert_all(case: MeshCase, same: Result<Vec<bool>, String>) {
    let label = format!("{} with {}", case.mesh, case.zero);
    let same = same.unwrap_or_else(|error| panic!("{label}: {error}"));
    assert!(same.into_iter().all(|same| same), "{label}: other bits");
}

/// All forward passes come first, as in GPipe.
#[test]
fn all_forward_passes_first() {
    let forward = |count| (0..count).flat_map(|i| [F(0, i), F(1, i)]);
    let backward = |count| (0..count).flat_map(|i| [B(1, i), B(0, i)]);
    for count in [2, 4] {
        let order: Vec<_> = forward(count).chain(backward(count)).collect();
        assert_same_bits("GPipe", count, &order);
    }
    // The chunks of a rank in a pipeline with virtual stages.
    let order = [F(0, 0), F(0, 1), F(1, 0), F(1, 1), B(1, 0), B(1, 1), B(0, 0), B(0, 1)];
    assert_same_bits("virtual stages", 2, &order);
}

/// One forward pass is ahead, as in 1F1B.
#[test]
fn one_forward_one_backward() {
    let mut order = vec![F(0, 0), F(1, 0)];
    for i in 1..4 {
        order.extend([F(0, i), B(1, i - 1), F(1, i), B(0, i - 1)]);
    }
    order.extend([B(1, 3), B(0, 3)]);
    assert_same_bits("1F1B", 4, &order);
}

/// Weight gradients come later, and in the ascending order of micro-batches.
#[test]
fn deferred_weight_gradients() {
    let order = [
        [F(0, 0), F(1, 0), F(0, 1), F(1, 1), I(1, 0), I(0, 0)],
        [I(1, 1), W(1, 0), I(0, 1), W(0, 0), W(0, 1), W(1, 1)],
    ];
    assert_same_bits("I before W", 2, order.as_flattened());
    let order =
        [F(0, 0), F(1, 0), I(1, 0), W(1, 0), F(0, 1), I(0, 0), W(0, 0), F(1, 1), B(1, 1), B(0, 1)];
    assert_same_bits("W behind I, then B", 2, &order);
}

/// Matmuls of weight gradients are deferred, but not inside of recomputed segments, and not from ZeRO stage 2 on.
#[test]
fn deferred_matmuls_run_later() {
    for case in cases() {
        let flops = on(case, |rank| {
            let built = model(rank, false);
            let order = [F(0, 0), F(1, 0), I(1, 0), I(0, 0), W(1, 0), W(0, 0)];
            let mut run = Run::new(rank, &built, 1, &order);
            (0..4).for_each(|at| run.act(at));
            [4, 5].map(|at| {
                let before = rank.backend().flops();
                run.act(at);
                rank.backend().flops() - before
            })
        });
        let is_deferred = case.zero < ZeroStage::Gradients;
        for [recomputed, plain] in flops.unwrap_or_else(|error| panic!("{}: {error}", case.mesh)) {
            assert_eq!(recomputed, 0, "{} with {}", case.mesh, case.zero);
            assert_eq!(plain > 0, is_deferred, "{} with {}: {plain}", case.mesh, case.zero);
        }
    }
}

/// Gradients are reduced once per step after the last pass, and from ZeRO stage 2 on after each pass.
#[test]
fn reductions_start_after_the_last_pass() {
    for zero in ZeroStage::ALL {
        let bytes = on(MeshCase { mesh: "fsdp=2", zero }, |rank| {
            let built = model(rank, false);
            let order = chunks_in_turn(2);
            let mut run = Run::new(rank, &built, 2, &order);
            let sent_by = |run: &mut Run<'_>, range: std::ops::Range<usize>| {
                let sent = || rank.comms().bytes_by_axes().values().sum::<u64>();
                let before = sent();
                range.for_each(|at| run.act(at));
                sent() - before
            };
            [sent_by(&mut run, 0..4), sent_by(&mut run, 4..8)]
        });
        for [first, last] in bytes.unwrap_or_else(|error| panic!("{zero}: {error}")) {
            assert_eq!(first > 0, zero >= ZeroStage::Gradients, "{zero}: {first}");
            assert!(last > 0, "{zero}");
        }
    }
}

/// Backward passes in descending order have the gradients of micro-batches accumulated in that order.
#[test]
fn backward_in_descending_order() {
    let order = [F(0, 0), F(1, 0), F(0, 1), F(1, 1), B(1, 1), B(0, 1), B(1, 0), B(0, 0)];
    for case in cases() {
        let same = on(case, |rank| {
            let built = model(rank, false);
            let found = numbers(&Run::new(rank, &built, 2, &order).reduce(), &built);
            let loss = |i| {
                let batch = batch(rank, i, 2);
                built.model.loss(&built.model.forward(&batch.tokens), &batch.targets)
            };
            let expected = loss(1).accumulate().backward(loss(0)).reduce();
            found == numbers(&expected, &built)
        });
        assert_all(case, same);
    }
}

#[model]
struct Perceptron {
    shift: Bias<Hidden>,
    up: Linear<Hidden, Ffn>,
    down: Linear<Ffn, Hidden>,
}

type Row = Tensor<(Batch, Hidden)>;

#[forward]
impl Perceptron {
    fn forward(&self, x: &Row) -> Row {
        self.down.forward(&self.up.forward(x).gelu())
    }
}

/// The gradient of one row is that of a bias which is added to it.
#[test]
fn gradient_of_the_input() {
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let same = on(ONE, |rank| {
        let built = built::<Perceptron>(rank, &sizes());
        let x = Row::from_fn(rank, &[1, 8], |index| (index[1] as f32).sin());
        let x = built.model.shift.forward(&x);
        let y = built.model.forward(&x);
        let expected = Loss::mean_of(&(&y * &y)).backward().reduce();
        let count = 8.0;
        let expected = expected.local_block_of("shift.bias").expect("the bias is used");
        let expected = expected.into_iter().map(|value| value * count).collect();

        let mut gradients = Gradients::of_passes(rank);
        let (y, mut pass) = ForwardPass::record(rank, &x, |x| built.model.forward(x));
        pass.add_loss(&y, |y| Loss::mean_of(&(y * y)));
        let now = WeightGradients::Now { complete: &built.units };
        let (dx, _) = pass.backward(&mut gradients, None, now);
        gradients.complete().discard();
        let found = dx.to_local_vecs().remove(0).expect("the input is a tensor");
        (bits(found), bits(expected))
    });
    for (found, expected) in same.expect("the program runs") {
        assert_eq!(found, expected);
    }
}

/// A pass that is dropped changes nothing, also if gradients are reduced per micro-batch.
#[test]
fn dropped_pass() {
    for case in cases() {
        let same = on(case, |rank| {
            let built = model(rank, true);
            let expected = numbers(&accumulated(rank, &built, 2), &built);
            let tokens = batch(rank, 0, 2).tokens;
            let (x, first) = ForwardPass::record(rank, &tokens, |tokens| built.model.first(tokens));
            let (_, last) = ForwardPass::record(rank, &x, |x| built.model.last(x));
            drop((first, last));
            expected == numbers(&accumulated(rank, &built, 2), &built)
        });
        assert_all(case, same);
    }
}

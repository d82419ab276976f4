//! Weighted losses of forward passes, which have the gradients of ordinary accumulation.

use std::rc::Rc;

use meshwright::layout::Dims;
use meshwright::nn::Built;
use meshwright::prelude::*;
use meshwright::tensor::{
    ForwardPass, Objective, OfStep, Reduced, StepCount, Unit, WeightGradients,
};

use super::super::harness::{ONE, assert_mesh_parity, gradients_of, mesh, on, refused, stage3};
use super::super::net::{Batch, Batched, Hidden, Seq};
use super::orders::{assert_all, cases, numbers};
use super::{Lm, Stream, batch, model};

/// The counts of a step, each of a loss with a weight.
struct Counts {
    tokens: StepCount<(Batch, Seq)>,
    squares: StepCount<(Batch, Split<Seq, Tp>, Hidden)>,
    /// Difference of the weights of a micro-batch and the next one.
    increase: f32,
}

impl Counts {
    fn of_step(rank: &Rank, built: &Built<Lm>, count: usize, increase: f32) -> Counts {
        let batches: Vec<Batched> = (0..count).map(|i| batch(rank, i, count)).collect();
        let elements = |x: Stream| local_elements(&x);
        let squares = batches
            .iter()
            .map(|batch| rank.evaluate(|| elements(built.model.embed.forward(&batch.tokens))));
        Counts {
            squares: StepCount::new(rank, squares.sum()),
            tokens: StepCount::new(rank, batches.iter().map(|batch| batch.counted).sum()),
            increase,
        }
    }

    fn loss(&self, built: &Built<Lm>, x: &Stream, batch: &Batched) -> Objective<OfStep> {
        let weight = 1.0 + self.increase * batch.index as f32;
        built.model.loss(x, &batch.targets).weighted_over(weight, &self.tokens)
    }

    fn penalty(&self, x: &Stream) -> Objective<OfStep> {
        Loss::mean_of(&x.square()).weighted_over(-0.3, &self.squares)
    }
}

fn local_elements<S: Dims>(x: &Tensor<S>) -> u64 {
    x.local_extents().iter().map(|extent| extent.local as u64).product()
}

/// Returns the gradients of ordinary accumulation.
fn accumulated(rank: &Rank, built: &Built<Lm>, count: usize, increase: f32) -> Gradients<Reduced> {
    let counts = Counts::of_step(rank, built, count, increase);
    let objective = |i| {
        let batch = batch(rank, i, count);
        let x = built.model.forward(&batch.tokens);
        counts.loss(built, &x, &batch) + counts.penalty(&x)
    };
    let first =
        (1..count - 1).fold(objective(0).accumulate(), |sum, i| sum.accumulate(objective(i)));
    first.backward(objective(count - 1)).reduce()
}

/// Returns the gradients of passes through the two chunks of the model. All forward passes come first.
fn of_passes(rank: &Rank, built: &Built<Lm>, count: usize, increase: f32) -> Gradients<Reduced> {
    let counts = Counts::of_step(rank, built, count, increase);
    let forward = |i| {
        let batch = batch(rank, i, count);
        let (x, first) =
            ForwardPass::record(rank, &batch.tokens, |tokens| built.model.first(tokens));
        let (y, mut last) = ForwardPass::record(rank, &x, |x| built.model.last(x));
        if i % 2 == 0 {
            last.add_loss(&y, |y| counts.loss(built, y, &batch) + counts.penalty(y));
        } else {
            last.add_loss(&y, |y| counts.loss(built, y, &batch));
            last.add_loss(&y, |y| counts.penalty(y));
        }
        (first, last)
    };
    let mut gradients = Gradients::of_passes(rank);
    let passes: Vec<_> = (0..count).map(forward).collect();
    for (i, (first, last)) in passes.into_iter().enumerate() {
        let no_unit = WeightGradients::Now { complete: &[] };
        let (dx, _) = last.backward(&mut gradients, None, no_unit);
        let complete: &[Rc<Unit>] = if i == count - 1 { &built.units } else { &[] };
        first.backward(&mut gradients, Some(dx), WeightGradients::Now { complete });
    }
    gradients.complete().reduce()
}

#[test]
fn weighted_passes_are_accumulation() {
    for case in cases() {
        for count in [2, 4] {
            let same = on(case, |rank| {
                let built = model(rank, false);
                let expected = numbers(&accumulated(rank, &built, count, 0.5), &built);
                expected == numbers(&of_passes(rank, &built, count, 0.5), &built)
            });
            assert_all(case, same);
        }
    }
}

#[test]
fn every_mesh_has_the_gradients_of_one_rank() {
    assert_mesh_parity("weighted losses of passes", |rank| {
        let built = model(rank, true);
        let gradients = of_passes(rank, &built, 2, 0.0);
        gradients_of(&built, &gradients)
    });
}

/// One loss of a step has a weight, and another one has none.
#[test]
fn losses_with_and_without_weights_are_refused() {
    for case in [ONE, mesh("tp=2"), stage3("fsdp=2")] {
        for weighted_first in [false, true] {
            let parts = ["one loss of the step has a weight, and another has none"];
            refused(case, file!(), &parts, |rank, spot| {
                let built = model(rank, true);
                let counts = Counts::of_step(rank, &built, 2, 0.0);
                let mut gradients = Gradients::of_passes(rank);
                for i in 0..2 {
                    let batch = batch(rank, i, 2);
                    let (x, mut pass) =
                        ForwardPass::record(rank, &batch.tokens, |ids| built.model.forward(ids));
                    if weighted_first == (i == 0) {
                        pass.add_loss(&x, |x| counts.penalty(x));
                    } else {
                        pass.add_loss(&x, |x| built.model.loss(x, &batch.targets));
                    }
                    let now = WeightGradients::Now { complete: &[] };
                    spot.next(line!());
                    pass.backward(&mut gradients, None, now);
                }
            });
        }
    }
}

/// A pass that is left out is not counted.
#[test]
fn other_counts_than_announced_are_refused() {
    for case in [ONE, mesh("dp=2"), stage3("fsdp=2")] {
        let parts = ["have counted", "are announced at"];
        refused(case, file!(), &parts, |rank, spot| {
            let built = model(rank, true);
            let counts = Counts::of_step(rank, &built, 2, 0.0);
            let mut gradients = Gradients::of_passes(rank);
            let tokens = batch(rank, 0, 2).tokens;
            let (x, mut pass) = ForwardPass::record(rank, &tokens, |ids| built.model.forward(ids));
            pass.add_loss(&x, |x| counts.penalty(x));
            let now = WeightGradients::Now { complete: &built.units };
            pass.backward(&mut gradients, None, now);
            spot.next(line!());
            let gradients = gradients.complete();
            drop(gradients);
        });
    }
}

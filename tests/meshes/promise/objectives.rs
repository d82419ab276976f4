//! Weighted sums of losses, each divided by its own count, on every mesh and with any number of micro-batches.

use meshwright::layout::Dims;
use meshwright::prelude::*;
use meshwright::tensor::{Objective, OfStep, StepCount, WeightedSum};
use meshwright_tests::compare::distance;

use super::harness::{
    Numbers, ONE, assert_mesh_parity, built, gradients_of, mesh, on, refused, stage3,
};
use super::net::*;

/// Sequences and positions of the batch.
const BATCH: (usize, usize) = (12, 6);

fn squares<S: Dims>(x: &Tensor<S>) -> Loss<S> {
    Loss::mean_of(&x.square())
}

/// Losses with four counts: of targets, of samples, of split positions, and of numbers that all ranks have.
struct Terms {
    tokens: Loss<(Batch, Seq)>,
    samples: Loss<(Batch, Hidden)>,
    split: Loss<(Batch, Split<Seq, Tp>, Hidden)>,
    shared: Loss<(Hidden,)>,
}

impl Terms {
    fn of(net: &Net, batch: &Batched) -> Terms {
        let x = net.plain.forward(&net.embed.forward(&batch.tokens));
        let split = net.norm.forward(&x.slice(Seq, Tp)).tanh() * &net.gain;
        Terms {
            tokens: net.head.loss(&x, &batch.targets),
            samples: squares(&x.mean(Seq)),
            split: squares(&split),
            shared: squares(&net.bias.forward(&Tensor::from_fn(x.rank(), &[8], |at| at[0] as f32))),
        }
    }

    fn weighted(self) -> Objective {
        self.tokens.weighted(1.0)
            + self.samples.weighted(0.3)
            + self.split.weighted(-0.7)
            + self.shared.weighted(0.01)
    }

    fn weighted_over(self, counts: &Counts) -> Objective<OfStep> {
        let mut sum = self.tokens.weighted_over(1.0, &counts.tokens);
        sum += self.samples.weighted_over(0.3, &counts.samples);
        sum += self.split.weighted_over(-0.7, &counts.split)
            + self.shared.weighted_over(0.01, &counts.shared);
        sum
    }
}

/// The counts of a step.
struct Counts {
    tokens: StepCount<(Batch, Seq)>,
    samples: StepCount<(Batch, Hidden)>,
    split: StepCount<(Batch, Split<Seq, Tp>, Hidden)>,
    shared: StepCount<(Hidden,)>,
}

impl Counts {
    /// Counts a step of `micro_batches`. Each has the shared loss.
    fn of_step(net: &Net, rank: &Rank, micro_batches: u64) -> Counts {
        let all = micro_batch(rank, BATCH, (0, 1), false);
        let x = net.embed.forward(&all.tokens);
        let elements = |extents: Vec<usize>| extents.into_iter().product::<usize>() as u64;
        let local = |extents: &[meshwright::tensor::Extent]| {
            elements(extents.iter().map(|extent| extent.local).collect())
        };
        Counts {
            tokens: StepCount::new(rank, all.counted),
            samples: StepCount::new(rank, local(x.mean(Seq).local_extents())),
            split: StepCount::new(rank, local(x.slice(Seq, Tp).local_extents())),
            shared: StepCount::new(rank, 8 * micro_batches),
        }
    }
}

/// Returns the gradients of a step of several micro-batches.
fn of_micro_batches(rank: &Rank, count: usize) -> Numbers {
    let net = built::<Net>(rank, &sizes());
    let counts = Counts::of_step(&net.model, rank, count as u64);
    let objective = |index: usize| {
        let batch = micro_batch(rank, BATCH, (index, count), false);
        Terms::of(&net.model, &batch).weighted_over(&counts)
    };
    let gradients = match count {
        1 => objective(0).backward(),
        _ => {
            let first = objective(0).accumulate();
            let middle = (1..count - 1).fold(first, |sum, index| sum.accumulate(objective(index)));
            middle.backward(objective(count - 1))
        }
    };
    gradients_of(&net, &gradients.reduce())
}

/// Returns value and gradients of the whole batch.
fn of_batch(rank: &Rank) -> Numbers {
    let net = built::<Net>(rank, &sizes());
    let objective = Terms::of(&net.model, &micro_batch(rank, BATCH, (0, 1), false)).weighted();
    let value = objective.reduce().value();
    let gradients = objective.backward().reduce();
    let mut numbers = gradients_of(&net, &gradients);
    numbers.insert("value".into(), vec![value as f32]);
    numbers.insert("norm".into(), vec![gradients.norm() as f32]);
    numbers
}

#[track_caller]
fn assert_close(name: &str, got: &Numbers, expected: &Numbers) {
    for (param, expected) in expected.iter().filter(|(param, _)| param.starts_with("gradient")) {
        let got = &got[param];
        let is_noise = got.iter().chain(expected).all(|x| x.abs() < 1e-9);
        assert!(is_noise || distance(got, expected) < 1e-5, "{name}: {param}");
    }
}

#[test]
fn every_mesh_has_the_gradients_of_one_rank() {
    assert_mesh_parity("weighted losses", of_batch);
    for count in [1, 2, 3] {
        assert_mesh_parity(&format!("{count} micro-batches"), |rank| of_micro_batches(rank, count));
    }
}

#[test]
fn each_loss_is_divided_by_its_own_count() {
    let found = on(ONE, |rank| {
        let net = built::<Net>(rank, &sizes());
        let terms = || Terms::of(&net.model, &micro_batch(rank, BATCH, (0, 1), false));
        let gradients = [
            (1.0, gradients_of(&net, &terms().tokens.backward().reduce())),
            (0.3, gradients_of(&net, &terms().samples.backward().reduce())),
            (-0.7, gradients_of(&net, &terms().split.backward().reduce())),
            (0.01, gradients_of(&net, &terms().shared.backward().reduce())),
        ];
        let mut expected = Numbers::new();
        for (weight, of_term) in gradients {
            for (name, gradient) in of_term {
                let sum = expected.entry(name).or_insert_with(|| vec![0.0; gradient.len()]);
                sum.iter_mut().zip(gradient).for_each(|(sum, x)| *sum += weight * x);
            }
        }
        assert_close("one batch", &of_batch(rank), &expected);
        let Terms { tokens, samples, split, shared } = terms();
        let value = tokens.reduce().value() + 0.3 * samples.reduce().value()
            - 0.7 * split.reduce().value()
            + 0.01 * shared.reduce().value();
        assert!((f64::from(of_batch(rank)["value"][0]) - value).abs() < 1e-6 * value.abs());
    });
    found.unwrap_or_else(|error| panic!("{error}"));
}

/// The gradients of any number of micro-batches equal the batch's, although they have other numbers of targets.
#[test]
fn micro_batches_are_divided_by_the_counts_of_the_step() {
    for case in [ONE, mesh("dp=2"), mesh("tp=2"), stage3("fsdp=2,tp=2")] {
        let found = on(case, |rank| {
            let expected = of_batch(rank);
            for count in [1, 2, 3] {
                assert_close(
                    &format!("{count} micro-batches"),
                    &of_micro_batches(rank, count),
                    &expected,
                );
            }
        });
        found.unwrap_or_else(|error| panic!("{}: {error}", case.mesh));
    }
}

/// The value of a step is the sum of the parts that its micro-batches have.
#[test]
fn values_of_micro_batches_are_added() {
    for case in [ONE, mesh("dp=2"), mesh("tp=2"), stage3("fsdp=2,tp=2")] {
        let found = on(case, |rank| {
            let net = built::<Net>(rank, &sizes());
            let counts = Counts::of_step(&net.model, rank, 3);
            let mut sum = WeightedSum::default();
            for index in 0..3 {
                let batch = micro_batch(rank, BATCH, (index, 3), false);
                sum += Terms::of(&net.model, &batch).weighted_over(&counts).reduce();
            }
            let expected = f64::from(of_batch(rank)["value"][0]);
            assert!((sum.value() - expected).abs() < 1e-6 * expected.abs());
        });
        found.unwrap_or_else(|error| panic!("{}: {error}", case.mesh));
    }
}

/// A loss that counts nothing is zero, whatever its place in the sum.
#[test]
fn losses_without_targets_are_zero() {
    let found = on(mesh("dp=2"), |rank| {
        let net = built::<Net>(rank, &sizes());
        let batch = micro_batch(rank, BATCH, (0, 1), false);
        let ignored = vec![Targets::<(Batch, Seq)>::IGNORED; BATCH.0 / 2 * BATCH.1];
        let ignored: Ids = Tokens::from_block(rank, &[BATCH.0, BATCH.1], &ignored);
        let x = || net.model.embed.forward(&batch.tokens);
        let alone = gradients_of(&net, &squares(&x()).backward().reduce());
        let none = || net.model.head.loss(&x(), &ignored).weighted(2.0);
        for objective in
            [none() + squares(&x()).weighted(1.0), squares(&x()).weighted(1.0) + none()]
        {
            assert_eq!(objective.reduce().value(), squares(&x()).reduce().value());
            assert_close(
                "with targets",
                &gradients_of(&net, &objective.backward().reduce()),
                &alone,
            );
        }
        assert_eq!(none().reduce().value(), 0.0);
        let zeros = gradients_of(&net, &none().backward().reduce());
        assert!(zeros.values().flatten().all(|x| *x == 0.0));
    });
    found.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn counts_other_than_announced_are_refused() {
    for case in [ONE, mesh("dp=2"), mesh("tp=2")] {
        for micro_batches in [1, 2] {
            let parts = ["the losses over (Batch, Seq, Hidden) have counted", "are announced at"];
            refused(case, file!(), &parts, |rank, spot| {
                let net = built::<Net>(rank, &sizes());
                let batch = micro_batch(rank, BATCH, (0, 1), false);
                let x = || net.model.embed.forward(&batch.tokens);
                let elements =
                    x().local_extents().iter().map(|extent| extent.local as u64).product::<u64>();
                spot.next(line!());
                let count = StepCount::new(rank, elements * micro_batches + 1);
                let objective = || squares(&x()).weighted_over(1.0, &count);
                let _ = match micro_batches {
                    1 => objective().backward(),
                    _ => objective().accumulate().backward(objective()),
                }
                .reduce();
            });
        }
    }
}

/// In any step, also of ranks that have other losses anyway.
#[test]
fn weights_that_differ_between_ranks_are_refused() {
    for case in [mesh("dp=2"), mesh("tp=2"), stage3("fsdp=2")] {
        for announced in [false, true] {
            let part = "the weighted or auxiliary losses of a step (the last is differentiated at";
            refused(case, file!(), &[part], |rank, spot| {
                let net = built::<Net>(rank, &sizes());
                for step in 0..3 {
                    let batch = micro_batch(rank, BATCH, (0, 1), false);
                    let weight = if step == 2 { 1.0 + rank.index() as f32 } else { 0.5 };
                    let x = net.model.embed.forward(&batch.tokens);
                    let loss = squares(&x.mean(Hidden));
                    let own = x.local_extents()[..2].iter().map(|extent| extent.local as u64);
                    let count = StepCount::new(rank, own.product());
                    let gradients = if announced {
                        spot.next(line!());
                        loss.weighted_over(weight, &count).backward()
                    } else {
                        spot.next(line!());
                        loss.weighted(weight).backward()
                    };
                    let _ = gradients.reduce();
                }
            });
        }
    }
}

/// Terms are matched between ranks by their order.
#[test]
fn losses_in_another_order_are_refused() {
    for case in [mesh("dp=2"), stage3("fsdp=2")] {
        let part = "differ between rank 0 and rank 1 in number, order, shapes or weights";
        refused(case, file!(), &[part], |rank, spot| {
            let net = built::<Net>(rank, &sizes());
            let batch = micro_batch(rank, BATCH, (0, 1), false);
            let x = net.model.embed.forward(&batch.tokens);
            let all = squares(&x).weighted(1.0);
            let pooled = squares(&x.mean(Hidden)).weighted(1.0);
            let sum = if rank.index() == 0 { all + pooled } else { pooled + all };
            spot.next(line!());
            let gradients = sum.backward();
            let _ = gradients.reduce();
        });
    }
}

/// The common factor of gradients is not that of a loss which hardly counts.
#[test]
fn tiny_weights_leave_finite_gradients() {
    let found = on(ONE, |rank| {
        let net = built::<Net>(rank, &sizes());
        let batch = micro_batch(rank, BATCH, (0, 1), false);
        let of_weight = |weight: f32| {
            let x = net.model.plain.forward(&net.model.embed.forward(&batch.tokens));
            let sum = squares(&x.mean(Hidden)).weighted(weight) + squares(&x).weighted(1.0);
            let gradients = sum.backward().reduce();
            assert!(gradients.norm().is_finite(), "weight {weight}");
            gradients_of(&net, &gradients)
        };
        let without = of_weight(0.0);
        for weight in [1e-12, 1e-30, 1e-36, 1e-44] {
            assert_close(&format!("weight {weight}"), &of_weight(weight), &without);
        }
        let x = net.model.embed.forward(&batch.tokens);
        let alone = gradients_of(&net, &squares(&x).weighted(1e-36).backward().reduce());
        assert!(alone.values().flatten().all(|x| x.abs() < 1e-34));
    });
    found.unwrap_or_else(|error| panic!("{error}"));
}

/// Losses count when they are differentiated, not when they are made or read.
#[test]
fn losses_that_are_not_differentiated_do_not_count() {
    let step = |rank: &Rank, differentiated: bool| {
        let net = built::<Net>(rank, &sizes());
        let batch = micro_batch(rank, BATCH, (0, 1), false);
        let loss = || squares(&net.model.embed.forward(&batch.tokens));
        let elements = (BATCH.0 * BATCH.1 * 8) as u64;
        let count = StepCount::new(rank, 2 * elements);
        let first = loss().weighted_over(1.0, &count);
        let value = first.reduce().value();
        let gradients = if differentiated {
            first.accumulate().backward(loss().weighted_over(1.0, &count))
        } else {
            loss().weighted_over(1.0, &count).backward()
        };
        (value, gradients.reduce().norm())
    };
    on(ONE, |rank| step(rank, true)).unwrap_or_else(|error| panic!("{error}"));
    let error = on(ONE, |rank| step(rank, false)).unwrap_err();
    assert!(
        error.contains("have counted 576 elements on this rank in this step, but 1152"),
        "{error}"
    );
}

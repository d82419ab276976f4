//! Accumulation of losses over different sets of axes, which are pooled exactly.

use meshwright::layout::Dims;
use meshwright::prelude::*;
use meshwright::tensor::{Objective, Pooled};
use meshwright_tests::compare::distance;

use super::harness::{ONE, Steps, assert_mesh_parity, built, gradients_of, numbers, on};
use super::net::*;

/// Differentiates `losses` of each of `count` micro-batches.
#[track_caller]
fn check(name: &str, losses: impl Fn(&Net, &Batched) -> Objective<Pooled> + Sync) {
    for (count, eager) in [(1, true), (2, false), (3, false), (2, true), (3, true)] {
        assert_mesh_parity(&format!("{name}, {count} micro-batches, {eager}"), |rank| {
            let net = built::<Net>(rank, &sizes());
            let mut steps = if eager { Steps::one_by_one(count) } else { Steps::default() };
            for index in 0..count {
                let batch = micro_batch(rank, (12, 7), (index, count), true);
                steps.add(losses(&net.model, &batch));
            }
            numbers(&net, steps)
        });
    }
}

#[test]
fn written_directly() {
    check("whole with split", |net, batch| {
        let x = net.embed.forward(&batch.tokens);
        let whole = net.norm.forward(&x);
        let split = net.norm.forward(&x.slice(Seq, Tp)).tanh();
        Loss::mean_of(&(&whole * &net.gain)).and(Loss::mean_of(&split))
    });
    check("a penalty on the mean of samples", |net, batch| {
        let x = net.plain.forward(&net.embed.forward(&batch.tokens));
        let mean = x.mean(Batch).all_reduce();
        net.head.loss(&x, &batch.targets).and(Loss::mean_of(&(&mean * &mean)))
    });
}

/// The mean of squares of a tensor.
fn squares<S: Dims>(x: &Tensor<S>) -> Loss<S> {
    Loss::mean_of(&(x * x))
}

trait Penalty {
    type Over: Dims;
    fn of(&self, net: &Net, x: &Stream) -> Loss<Self::Over>;
}

struct OnSplit;
struct OnMean;

impl Penalty for OnSplit {
    type Over = (Batch, Split<Seq, Tp>, Hidden);

    fn of(&self, net: &Net, x: &Stream) -> Loss<Self::Over> {
        squares(&net.plain.forward(&x.slice(Seq, Tp)))
    }
}

impl Penalty for OnMean {
    type Over = (Seq, Hidden);

    fn of(&self, net: &Net, x: &Stream) -> Loss<Self::Over> {
        squares(&(x.mean(Batch).all_reduce() * &net.gain))
    }
}

fn penalized<P: Penalty>(net: &Net, batch: &Batched, penalty: &P) -> Objective<Pooled> {
    let x = net.plain.forward(&net.embed.forward(&batch.tokens));
    squares(&x).and(penalty.of(net, &x))
}

#[test]
fn written_generically() {
    check("a generic penalty on split positions", |net, batch| penalized(net, batch, &OnSplit));
    check("a generic penalty on a mean", |net, batch| penalized(net, batch, &OnMean));
}

type SplitLoss = Loss<(Batch, Split<Seq, Tp>, Hidden)>;

type WholeLoss = Loss<(Batch, Seq, Hidden)>;

/// Losses that borrow a model.
struct ModelLosses<'a> {
    net: &'a Net,
    main: fn(&Net, &Stream) -> WholeLoss,
    split: fn(&Net, &Stream) -> SplitLoss,
}

impl ModelLosses<'_> {
    fn losses(&self, batch: &Batched) -> Objective<Pooled> {
        let x = self.net.embed.forward(&batch.tokens);
        Objective::from((self.main)(self.net, &x)).and((self.split)(self.net, &x))
    }
}

#[test]
fn written_in_fields() {
    check("losses in fields", |net, batch| {
        let objective = ModelLosses {
            net,
            main: |net, x| squares(&net.bias.forward(&net.norm.forward(x))),
            split: |net, x| squares(&net.bias.forward(&net.layer_norm.forward(&x.slice(Seq, Tp)))),
        };
        objective.losses(batch)
    });
}

#[test]
fn written_as_closures() {
    type Term = Box<dyn Fn(&Net, &Stream) -> Objective<Pooled>>;
    check("losses of a list", |net, batch| {
        let terms: Vec<Term> = vec![
            Box::new(|net, x| squares(&net.plain.forward(x)).into()),
            Box::new(|net, x| squares(&net.plain.forward(&x.slice(Seq, Tp)).tanh()).into()),
            Box::new(|net, x| squares(&net.plain.forward(&x.slice(Batch, Tp)).silu()).into()),
            Box::new(|net, x| squares(&(x.sum(Batch).all_reduce() * &net.gain)).into()),
        ];
        // Each micro-batch has a loss of another shape.
        terms[batch.index](net, &net.embed.forward(&batch.tokens))
    });
}

/// Losses whose counts differ by rank in each of the shapes.
#[test]
fn of_uneven_sizes() {
    for (batch, seq) in [(5, 7), (3, 3), (1, 2)] {
        assert_mesh_parity(&format!("uneven {batch} x {seq}"), |rank| {
            let net = built::<Net>(rank, &sizes());
            let mut steps = Steps::default();
            let batch = micro_batch(rank, (batch, seq), (0, 1), false);
            let x = net.model.plain.forward(&net.model.embed.forward(&batch.tokens));
            let split = net.model.plain.forward(&x.slice(Seq, Tp));
            let samples = x.slice(Batch, Tp).tanh();
            steps.add(squares(&x).and(squares(&split)).and(squares(&samples)));
            numbers(&net, steps)
        });
    }
}

/// The gradient of joined losses is that of their sums, divided by the total count.
#[test]
fn joined_losses_are_pooled() {
    let found = on(ONE, |rank| {
        let net = built::<Net>(rank, &sizes());
        let batch = micro_batch(rank, (4, 6), (0, 1), false);
        let x = || net.model.plain.forward(&net.model.embed.forward(&batch.tokens));
        let first = || squares(&x());
        let second = || squares(&x().mean(Batch).all_reduce());
        let own = |losses: Objective<Pooled>| gradients_of(&net, &losses.backward().reduce());
        let both = own(first().and(second()));
        let [first, second] = [own(first().into()), own(second().into())];
        let (of_first, of_second) = (4.0 * 6.0 * 8.0, 6.0 * 8.0);
        for (name, both) in &both {
            let pooled: Vec<f32> = first[name]
                .iter()
                .zip(&second[name])
                .map(|(a, b)| (a * of_first + b * of_second) / (of_first + of_second))
                .collect();
            let is_noise = pooled.iter().chain(both).all(|value| value.abs() < 1e-9);
            assert!(is_noise || distance(both, &pooled) < 1e-5, "{name}");
        }
    });
    found.unwrap_or_else(|error| panic!("{error}"));
}

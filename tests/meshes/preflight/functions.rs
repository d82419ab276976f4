//! User-defined functions whose fault their first call does not show.

use std::sync::atomic::{AtomicU32, Ordering};

use meshwright::prelude::*;
use meshwright::tensor::function::{Backward, Forward, Function, apply};

use super::{Net, caught, passes, stream, train};

type Pair<B, S, F> = ((B, S, F), (B, S, F));

/// `x * gate * factor`, with a fault.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Gate {
    Right,
    /// The factor grows along the part of this rank, by a setting.
    Slope(f32),
    /// The gradient of the gate grows along the part of this rank.
    OneGradient,
    /// Both gradients do.
    BothGradients,
    /// `x` is rounded to a scale of this rank's block.
    OwnScale,
    /// The factor counts the calls of the process.
    Counter,
}

static CALLS: AtomicU32 = AtomicU32::new(0);

impl Gate {
    /// Returns the factor of an element by its index along the part of this rank.
    fn factor(self, index: usize, gradient: bool) -> f32 {
        match self {
            Gate::Slope(slope) => 1.0 + slope * index as f32,
            Gate::BothGradients if gradient => 1.0 + 0.1 * index as f32,
            _ => 1.0,
        }
    }
}

impl<B: Dim, S: Dim, F: Dim> Function<Pair<B, S, F>> for Gate {
    type Output = Tensor<(B, S, F)>;
    type Saved = ();

    fn path(&self) -> &str {
        "gated"
    }

    fn forward_pass(&self, call: Forward<'_, Pair<B, S, F>, ()>) {
        let Forward { inputs: [x, gate], mut output, .. } = call;
        let width = x.local_extents()[2].local;
        let (mut x, gate) = (x.to_f32(), gate.to_f32());
        if *self == Gate::OwnScale {
            let scale = x.iter().fold(1e-9f32, |most, x| most.max(x.abs())) / 8.0;
            x.iter_mut().for_each(|x| *x = (*x / scale).round() * scale);
        }
        let counted = match self {
            Gate::Counter => 1.0 + 0.01 * CALLS.fetch_add(1, Ordering::Relaxed) as f32,
            _ => 1.0,
        };
        let element = |at: usize| x[at] * gate[at] * self.factor(at % width, false) * counted;
        output.write_f32(&(0..x.len()).map(element).collect::<Vec<_>>());
    }

    fn backward_pass(&self, call: Backward<'_, Pair<B, S, F>, (), ()>) {
        let Backward { inputs: [x, gate], output_gradient: dy, .. } = call;
        let width = x.local_extents()[2].local;
        let (x, gate, dy) = (x.to_f32(), gate.to_f32(), dy.to_f32());
        let [dx, dgate] = call.input_gradients;
        if let Some(mut dx) = dx.target() {
            let element = |at: usize| dy[at] * gate[at] * self.factor(at % width, true);
            dx.write_f32(&(0..x.len()).map(element).collect::<Vec<_>>());
        }
        if let Some(mut dgate) = dgate.target() {
            let wrong = if *self == Gate::OneGradient { 0.1 } else { 0.0 };
            let element = |at: usize| {
                let index = at % width;
                dy[at] * x[at] * self.factor(index, true) * (1.0 + wrong * index as f32)
            };
            dgate.write_f32(&(0..x.len()).map(element).collect::<Vec<_>>());
        }
    }
}

/// Returns the mean square of the network with a function of its hidden layer, of a gate of ones in `constant` steps.
fn loss(net: &Net, rank: &Rank, gate: Gate, is_constant: bool) -> Loss<(Batch, Seq, Hidden)> {
    let x = stream(rank);
    let inner: super::Inner = net.up.forward(&x);
    let gated = if is_constant {
        let ones = Tensor::from_fn(rank, &inner.sizes(), |_| 1.0);
        apply(gate, (&inner, &ones), ())
    } else {
        apply(gate, (&inner, &net.gate.forward(&x)), ())
    };
    let y = net.down.forward(&gated);
    Loss::mean_of(&(&y * &y))
}

use super::{Batch, Hidden, Seq};

#[test]
fn right_functions_pass() {
    passes("a right function", &["dp=2", "tp=2", "cp=2", "fsdp=2,tp=2"], |rank| {
        train(rank, |net, step| loss(net, rank, Gate::Right, step == 1))
    });
}

/// The slope is zero in the first step.
#[test]
fn a_setting_that_a_schedule_raises() {
    caught(
        "raised slope",
        &["tp=2", "dp=2,tp=2"],
        &["in step 2, along tp", "loss: differs"],
        |rank| {
            train(rank, |net, step| loss(net, rank, Gate::Slope(0.1 * (step - 1) as f32), false))
        },
    );
}

/// The gate is a constant in the first step, and its gradient is not required.
#[test]
fn the_backward_of_an_operand_that_was_constant() {
    let parts = ["in step 2, along tp:", "gradient of `gate.weight`: differs", "losses agree"];
    caught("gradient of the gate", &["tp=2"], &parts, |rank| {
        train(rank, |net, step| loss(net, rank, Gate::OneGradient, step == 1))
    });
}

/// The branch is multiplied by zero in the first step, and its gradients are zero.
#[test]
fn a_branch_that_is_zero_at_first() {
    let parts = ["in step 2, along tp", "gradient of `up.weight`: differs", "losses agree"];
    caught("zero branch", &["tp=2", "fsdp=2,tp=2"], &parts, |rank| {
        train(rank, |net, _| {
            let x = stream(rank);
            let inner: super::Inner = net.up.forward(&x);
            let gated = apply(Gate::BothGradients, (&inner, &net.gate.forward(&x)), ());
            let zeros: Tensor<(Batch, Seq, Hidden)> = Tensor::from_fn(rank, &super::SIZES, |_| 0.0);
            let y = &x + net.down.forward(&gated) * net.alpha.forward(&zeros);
            Loss::mean_of(&(&y * &y))
        })
    });
}

#[test]
fn a_scale_of_the_own_block() {
    for axis in ["tp", "dp", "cp"] {
        let mesh = format!("{axis}=2");
        let along = format!("in step 1, along {axis}");
        caught("own scale", &[&mesh], &[&along, "loss: differs"], |rank| {
            train(rank, |net, _| loss(net, rank, Gate::OwnScale, false))
        });
    }
}

#[test]
fn a_counter_of_the_process() {
    caught("counter", &["tp=2"], &["two runs on one rank differ in step 1"], |rank| {
        train(rank, |net, _| loss(net, rank, Gate::Counter, false))
    });
}

//! Programs whose numbers depend on rounding: right ones pass, and errors beside them are found.

use meshwright::layout::AxisId;
use meshwright::nn::build;
use meshwright::optim::{AdamWOptions, Optimizer};
use meshwright::prelude::*;
use meshwright::testing::{Observed, compare_meshes};
use meshwright_examples::lion::Lion;

use super::{passes, stream, train_with};

dims! { Batch @ data, Hidden }

#[model]
struct Layer {
    #[sharded(tp = "row")]
    map: Linear<Hidden, Hidden>,
    bias: Bias<Hidden>,
}

#[forward]
impl Layer {
    fn forward(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Hidden)> {
        self.bias.forward(&self.map.forward(&x.slice(Hidden, Tp)).tanh())
    }
}

#[model]
struct Deep {
    layers: Stack<Layer>,
}

/// Trains a network of many layers. Each amplifies differences by about `gain`.
fn train_deep(rank: &Rank, gain: f32, steps: u64) -> meshwright::Result<Observed> {
    let mut sizes = Sizes::new().with(Hidden, 32).with(Layers, 12);
    sizes.init_std = gain / 32f32.sqrt();
    let built = build::<Deep>(rank, &sizes)?;
    let mut optimizer = Optimizer::new(rank, &built.units, AdamWOptions::default());
    let mut observed = Observed::new(rank);
    for _ in 0..steps {
        let x: Tensor<(Batch, Hidden)> =
            Tensor::from_fn(rank, &[8, 32], |at| ((at[0] * 32 + at[1]) as f32).sin());
        let y = built.model.layers.forward(&x);
        let loss = Loss::mean_of(&(&y * &y));
        observed.loss(loss.reduce().value());
        let gradients = loss.backward().reduce();
        observed.gradients(&built, &gradients);
        optimizer.step(1e-2, gradients);
        observed.parameters(&built);
    }
    Ok(observed)
}

#[test]
fn networks_that_amplify_rounding_pass() {
    for gain in [0.5, 1.0, 2.0, 4.0] {
        passes(&format!("gain {gain}"), &["dp=2", "tp=2", "dp=2,tp=2"], |rank| {
            train_deep(rank, gain, 4)
        });
    }
}

/// The mean of a normalized stream is zero but for rounding; so is the gradient of a bias that the norm removes.
#[test]
fn sums_that_cancel_pass() {
    for rule in 0..2 {
        passes("a loss that cancels", &["dp=2", "tp=2", "fsdp=2", "dp=2,tp=2"], |rank| {
            let loss = |net: &super::Net, _| {
                let y = net.down.forward(&net.up.forward(&stream(rank)).silu());
                let shifted = net.alpha.forward(&y);
                let mean = &shifted - y;
                Loss::mean_of(&(&mean * net.alpha.forward(&stream(rank))))
            };
            match rule {
                0 => train_with(rank, AdamWOptions::default(), loss),
                _ => train_with(rank, Lion::default(), loss),
            }
        });
    }
}

/// An error of a ten-thousandth beside numbers that are noise.
#[test]
fn small_errors_are_found() {
    let error = compare_meshes(["tp=2"], |rank| {
        let is_wrong = rank.degree(AxisId::Tp) > 1;
        train_with(rank, AdamWOptions::default(), |net, _| {
            let x = stream(rank);
            let y = net.down.forward(&net.up.forward(&x).silu());
            let z = net.down.forward(&net.gate.forward(&x));
            let z = if is_wrong { z * 1.0001 } else { z };
            Loss::mean_of(&(&y * &y + &z * &z))
        })
    });
    let text = error.unwrap_err().to_string();
    assert!(text.contains("in step 1, along tp"), "{text}");
}

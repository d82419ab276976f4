//! Update rules that read where an element is in a shard.

use meshwright::optim::{FlatSlice, Group, UpdateRule, Updated};
use meshwright::prelude::*;
use meshwright_examples::lion::Lion;

use super::{caught, passes, stream, train_with};

/// Gradient descent, with a fault.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Descent {
    Right,
    /// The step grows with the index in the shard.
    Index,
    /// The step is divided by the length of the shard.
    Length,
    /// The gradient is divided by its norm in the shard.
    Norm,
    /// The first element of the shard stays.
    First,
}

impl UpdateRule for Descent {
    fn name(&self) -> &str {
        "descent"
    }

    fn state_kinds(&self, _: Group) -> &'static [&'static str] {
        &[]
    }

    fn update(&self, slice: FlatSlice<'_>) -> Updated {
        let (lr, scale) = (slice.lr() as f32, slice.step().grad_scale());
        slice.update_views([], |mut views| {
            let mut params: Vec<f32> = views.params.as_view().to_vec();
            let gradients: Vec<f32> = views.gradient.to_vec();
            let norm = gradients.iter().map(|g| g * g).sum::<f32>().sqrt().max(1e-12);
            let length = params.len() as f32;
            for (index, (param, gradient)) in params.iter_mut().zip(&gradients).enumerate() {
                let factor = match self {
                    Descent::Right => scale,
                    Descent::Index => scale * (1.0 + 0.01 * index as f32),
                    Descent::Length => scale * 16.0 / length,
                    Descent::Norm => 1.0 / norm,
                    Descent::First if index == 0 => 0.0,
                    Descent::First => scale,
                };
                *param -= lr * factor * gradient;
            }
            views.params.write(&params);
        })
    }
}

fn run(rank: &Rank, rule: impl UpdateRule) -> meshwright::Result<meshwright::testing::Observed> {
    train_with(rank, rule, |net, _| {
        let x = stream(rank);
        let y = net.down.forward(&(net.up.forward(&x).silu() * net.gate.forward(&x)));
        let y = net.alpha.forward(&y);
        Loss::mean_of(&(&y * &y))
    })
}

#[test]
fn right_rules_pass() {
    let meshes = ["dp=2", "fsdp=2", "tp=2", "fsdp=2,tp=2"];
    passes("gradient descent", &meshes, |rank| run(rank, Descent::Right));
    passes("Lion", &meshes, |rank| run(rank, Lion::default()));
}

#[test]
fn rules_that_read_their_place_in_a_shard() {
    for rule in [Descent::Index, Descent::Length, Descent::Norm, Descent::First] {
        let parts = ["in step 1, along fsdp", "` after the update: differs", "gradients agree"];
        caught(&format!("{rule:?}"), &["fsdp=2"], &parts, |rank| run(rank, rule));
    }
}

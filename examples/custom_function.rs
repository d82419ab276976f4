//! A model with a function that has a backward of its own: `cargo run --release --example custom_function`.

use meshwright::nn::build;
use meshwright::prelude::*;
use meshwright::testing::{Observed, compare_meshes};
use meshwright_examples::gated_norm::GatedRmsNorm;

dims! { Batch @ data, Seq, Hidden, Ffn }

/// A feed-forward network over a sequence-parallel stream.
#[model]
struct Net {
    up: Linear<Hidden, Ffn>,
    gate: Linear<Hidden, Ffn>,
    norm: GatedRmsNorm<Ffn>,
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Net {
    fn forward(
        &self,
        x: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>,
    ) -> Tensor<(Batch, Split<Seq, Tp>, Hidden)> {
        self.down.forward(&self.norm.forward(&self.up.forward(x), &self.gate.forward(x)))
    }
}

fn main() -> meshwright::Result<()> {
    meshwright_examples::refuse_flags_and_processes();
    for line in compare_meshes(["tp=2", "fsdp=2,tp=2"], |rank| Ok(step(rank)?.0))? {
        println!("{line}");
    }
    let axes = meshwright::run_on("fsdp=2,tp=2", 0, |rank| Ok(step(rank)?.1))?;
    println!("the gradient of the weight is reduced over `{}`", axes[0]);
    Ok(())
}

/// Returns the loss and the gradients of a step, and the axes over which that of the norm's weight is reduced.
pub fn step(rank: &Rank) -> meshwright::Result<(Observed, String)> {
    let mut sizes = Sizes::new().with(Hidden, 16).with(Ffn, 24);
    sizes.init_std = 0.3;
    let built = build::<Net>(rank, &sizes)?;
    let x =
        Tensor::from_fn(rank, &[4, 6, 16], |at| (at[0] as f32 + (at[1] * 16 + at[2]) as f32).sin());
    let y = built.model.forward(&x);
    let loss = Loss::mean_of(&(&y * &y));
    let mut observed = Observed::new(rank);
    observed.loss(loss.reduce().value());
    observed.gradients(&built, &loss.backward().reduce());
    let weight = built.params().into_iter().find(|param| param.path() == "norm.weight");
    let axes = weight.map_or_else(String::new, |weight| weight.gradient_axes().to_string());
    Ok((observed, axes))
}

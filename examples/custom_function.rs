//! A model with a function that has a backward of its own: `cargo run --release --example custom_function`.

use meshwright::nn::build;
use meshwright::prelude::*;
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
    for mesh in ["1", "tp=2", "fsdp=2,tp=2"] {
        let (loss, axes, norm) = run(mesh)?;
        println!(
            "{mesh:>12}: loss {loss:.6}, gradient of the weight over `{axes}`, norm {norm:.6}"
        );
    }
    Ok(())
}

/// Returns the loss, the axes over which the weight's gradient is reduced, and the gradient norm.
pub fn run(mesh: &str) -> meshwright::Result<(f64, String, f64)> {
    let mut sizes = Sizes::new().with(Hidden, 16).with(Ffn, 24);
    sizes.init_std = 0.3;
    let results = meshwright::run_on(mesh, 7, |rank| {
        let built = build::<Net>(rank, &sizes)?;
        let x = Tensor::from_fn(rank, &[4, 6, 16], |at| {
            (at[0] as f32 + (at[1] * 16 + at[2]) as f32).sin()
        });
        let y = built.model.forward(&x);
        let loss = Loss::mean_of(&(&y * &y));
        let (value, norm) = (loss.reduce().value(), loss.backward().reduce().norm());
        let weight = built.params().into_iter().find(|param| param.path() == "norm.weight");
        let axes = weight.map_or_else(String::new, |weight| weight.gradient_axes().to_string());
        Ok((value, axes, norm))
    })?;
    Ok(results[0].clone())
}

//! A custom layer with a sharding style, and a contraction in a model's `forward`:
//! `cargo run --release --example custom_layer`.

use meshwright::layout::{Axis, Shape};
use meshwright::nn::{Col, build};
use meshwright::prelude::*;
use meshwright::tensor::Contract;

dims! { Batch @ data, Hidden, Ffn }

/// `silu(x · gate) * (x · up)`: one layer with two weights from `I` to `O`.
pub struct Glu<I, O> {
    gate: Param<(I, O)>,
    up: Param<(I, O)>,
}

/// Builds the layer as a field of a model.
impl<I, O> Build for Glu<I, O>
where
    (I, O): Shape,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        let init = Init::Normal(builder.sizes().init_std);
        Glu { gate: builder.param("gate", init), up: builder.param("up", init) }
    }
}

/// Supports `tp = "col"`, which splits the output of both weights.
impl<I, O: Whole, A: Axis> Shard<Col<A>> for Glu<I, O> {
    type Sharded = Glu<I, Split<O, A>>;
}

impl<I, O> Glu<I, O>
where
    (I, O): Shape,
{
    /// Computes the layer for any input that can be contracted with both weights, whole or split.
    pub fn forward<X, Y: Shape>(&self, x: &Tensor<X>) -> Tensor<Y>
    where
        X: Contract<(I, O), Out = Tensor<Y>>,
    {
        x.contract(&self.gate).silu() * x.contract(&self.up)
    }
}

#[model]
struct Mlp {
    #[sharded(tp = "col")]
    glu: Glu<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Param<(Ffn, Hidden)>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Hidden)> {
        // Both operands are split along `Ffn`, so each rank has a partial sum. Without the reduction, or with a
        // non-linear function before it, this does not compile.
        let partial_sum: Partial<(Batch, Hidden), Tp> = self.glu.forward(x).contract(&self.down);
        partial_sum.all_reduce()
    }
}

fn main() -> meshwright::Result<()> {
    for mesh in ["1", "tp=2", "dp=2,tp=4"] {
        let (output, gradient) = run(mesh)?;
        println!("{mesh:>9}: output {output:.6}, norm of the gradient {gradient:.6}");
    }
    Ok(())
}

/// Returns the mean square of the output, and the gradient norm.
pub fn run(mesh: &str) -> meshwright::Result<(f64, f64)> {
    let mut sizes = Sizes::new().with(Hidden, 16).with(Ffn, 32);
    sizes.init_std = 0.3;
    let results = meshwright::run_on(mesh, 7, |rank| {
        let mlp = build::<Mlp>(rank, &sizes)?.model;
        let x = Tensor::from_fn(rank, &[8, 16], |at| ((at[0] * 16 + at[1]) as f32).sin());
        let y = mlp.forward(&x);
        let loss = Loss::mean_of(&(&y * &y));
        Ok((loss.reduce().value(), loss.backward().reduce().norm()))
    })?;
    Ok(results[0])
}

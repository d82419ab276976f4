//! A custom layer with a sharding style, and a contraction in a model's `forward`, compared on meshes with one rank:
//! `cargo run --release --example custom_layer`.

use meshwright::layout::{Axis, Shape};
use meshwright::nn::{Col, build};
use meshwright::prelude::*;
use meshwright::tensor::Contract;
use meshwright::testing::{Observed, compare_meshes};

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
    for line in compare_meshes(["dp=2", "tp=2", "dp=2,tp=4"], observe)? {
        println!("{line}");
    }
    Ok(())
}

/// Observes the loss and the gradients of a step.
pub fn observe(rank: &Rank) -> meshwright::Result<Observed> {
    let mut sizes = Sizes::new().with(Hidden, 16).with(Ffn, 32);
    sizes.init_std = 0.3;
    let built = build::<Mlp>(rank, &sizes)?;
    let x = Tensor::from_fn(rank, &[8, 16], |at| ((at[0] * 16 + at[1]) as f32).sin());
    let y = built.model.forward(&x);
    let loss = Loss::mean_of(&(&y * &y));
    let mut observed = Observed::new(rank);
    observed.loss(loss.reduce().value());
    observed.gradients(&built, &loss.backward().reduce());
    Ok(observed)
}

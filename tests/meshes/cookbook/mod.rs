//! The recipes of the book's cookbook: each trains on meshes as on one rank.

mod attention;
mod conditioning;
mod contrastive;
mod frozen;
mod kinds;
mod latent_attention;
mod merging;
mod mixers;
mod pooling;
mod variational;

use meshwright::nn::{Build, build};
use meshwright::optim::{AdamWOptions, Optimizer};
use meshwright::prelude::*;
use meshwright::testing::{Observed, assert_mesh_independent};

/// The meshes of recipes whose sequences are whole, or split over tp.
const MESHES: [&str; 4] = ["tp=2", "dp=2", "fsdp=2", "dp=2,tp=2"];

/// Trains two steps on one rank and on each of `meshes`, and compares losses, gradients and parameters.
#[track_caller]
fn compare_on<M: Build, S: meshwright::layout::Dims>(
    meshes: &[&str],
    sizes: &Sizes,
    loss: impl Fn(&M, &Rank) -> Loss<S> + Sync,
) {
    assert_mesh_independent(meshes, |rank| {
        let built = build::<M>(rank, sizes)?;
        let mut optimizer = Optimizer::new(rank, &built.units, AdamWOptions::default());
        let mut observed = Observed::new(rank);
        for _ in 0..2 {
            let loss = loss(&built.model, rank);
            observed.loss(loss.reduce().value());
            let gradients = loss.backward().reduce();
            observed.gradients(&built, &gradients);
            optimizer.step(1e-2, gradients);
            observed.parameters(&built);
        }
        Ok(observed)
    });
}

/// Compares on [`MESHES`].
#[track_caller]
fn compare<M: Build, S: meshwright::layout::Dims>(
    sizes: &Sizes,
    loss: impl Fn(&M, &Rank) -> Loss<S> + Sync,
) {
    compare_on(&MESHES, sizes, loss);
}

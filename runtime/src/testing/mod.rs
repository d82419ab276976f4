//! Tests of programs: that the mesh does not matter, and that a step stays within a [budget].
//!
//! A program on meshes is compared with the same program on one rank:
//!
//! ```
//! use meshwright::nn::build;
//! use meshwright::optim::{AdamWOptions, Optimizer};
//! use meshwright::prelude::*;
//! use meshwright::testing::{Observed, assert_mesh_independent};
//!
//! dims! { Batch @ data, Hidden, Ffn }
//!
//! #[model]
//! struct Mlp {
//!     #[sharded(tp = "col")]
//!     up: Linear<Hidden, Ffn>,
//!     #[sharded(tp = "row")]
//!     down: Linear<Ffn, Hidden>,
//! }
//!
//! assert_mesh_independent(["dp=2", "tp=2", "fsdp=2,tp=2"], |rank| {
//!     let built = build::<Mlp>(rank, &Sizes::new().with(Hidden, 8).with(Ffn, 12))?;
//!     let mut optimizer = Optimizer::new(rank, &built.units, AdamWOptions::default());
//!     let mut observed = Observed::new(rank);
//!     for _ in 0..2 {
//!         let x: Tensor<(Batch, Hidden)> =
//!             Tensor::from_fn(rank, &[4, 8], |at| (at[0] as f32 - at[1] as f32).sin());
//!         let y = built.model.down.forward(&built.model.up.forward(&x).silu());
//!         let loss = Loss::mean_of(&(&y * &y));
//!         observed.loss(loss.reduce().value());
//!         let gradients = loss.backward().reduce();
//!         observed.gradients(&built, &gradients);
//!         optimizer.step(1e-2, gradients);
//!         observed.parameters(&built);
//!     }
//!     Ok(observed)
//! });
//! ```

mod budget;

use std::panic::Location;

use crate::mesh::MeshShape;
use crate::parity::{Parity, Part};
use crate::tensor::{Rank, Settings, ZeroStage};
use crate::train::{Error, run_on_shape};

pub use crate::parity::Observed;
pub use budget::{StepBudget, TimedBudget, budget};

/// The seed of [`assert_mesh_independent`].
const SEED: u64 = 0;

/// Runs `body` on one rank and on each of `meshes`, and asserts that all ranks observe the numbers of one rank, up to
/// the rounding of sums in another order.
///
/// Ranks are threads, as in [`run_on`](crate::run_on), and compute in f32. A mesh with `fsdp` ranks shards all state,
/// at ZeRO stage 3; with `pp` ranks as well, that of the optimizer only. The rounding to be expected is measured by
/// runs on one rank whose results differ in their last bits.
///
/// The program is started again for one rank and for each mesh, by the name of the test or with the same arguments, and
/// ends when `body` has run there: what it keeps in a `static` would be that of another run otherwise. If it does not
/// come to this call again, or has no thread for each test (`--test-threads=1`), all runs are in this process.
///
/// # Panics
/// If a mesh cannot be parsed, `body` fails on a mesh, or its numbers differ: the message names the first step, the
/// axes, and the losses, gradients and parameters that differ, and by how much. Also if two runs on one rank differ.
#[track_caller]
pub fn assert_mesh_independent<M: AsRef<str>>(
    meshes: impl IntoIterator<Item = M>,
    body: impl Fn(&Rank) -> crate::Result<Observed> + Sync,
) {
    if let Err(error) = compare_meshes(meshes, body) {
        panic!("{error}");
    }
}

/// Compares like [`assert_mesh_independent`], and returns a line for each mesh: how close it is to one rank.
///
/// # Errors
/// Where [`assert_mesh_independent`] panics.
#[track_caller]
pub fn compare_meshes<M: AsRef<str>>(
    meshes: impl IntoIterator<Item = M>,
    body: impl Fn(&Rank) -> crate::Result<Observed> + Sync,
) -> crate::Result<Vec<String>> {
    let shapes = meshes.into_iter().map(|mesh| Ok(mesh.as_ref().parse::<MeshShape>()?));
    let shapes = shapes.collect::<crate::Result<Vec<_>>>()?;
    if shapes.iter().all(|mesh| mesh.world_size() == 1) {
        let reason =
            "there is nothing to compare with one rank: name meshes of several, such as `dp=2`";
        return Err(Error::Input(reason.to_owned()));
    }
    let run = |mesh: &MeshShape, noise: Option<u32>| {
        let settings = Settings { zero: ZeroStage::suited_to(mesh), ..Settings::new(SEED) };
        run_on_shape(mesh, settings, |rank| {
            if let Some(key) = noise {
                rank.add_rounding_noise(key);
            }
            body(rank)
        })
    };
    let compared = match Part::of_comparison(Location::caller()) {
        Part::Compares(compared) => compared,
        Part::Observes(observer) => observer.observe(run),
        Part::Skips => {
            return Ok(shapes.iter().map(|mesh| format!("{mesh} is not compared")).collect());
        }
    };
    let mut parity = Parity::new(compared, run).map_err(Error::of_parity)?;
    let mut lines = Vec::new();
    for mesh in &shapes {
        lines.push(parity.check(mesh).map_err(Error::of_parity)?.to_string());
    }
    Ok(lines)
}

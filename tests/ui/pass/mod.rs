//! Models that must compile.

mod attention;
mod context;
mod contraction;
mod custom_layer;
mod data_axes;
mod experts;
mod generic;
mod generic_helpers;
mod gradient_axes;
mod hygiene;
mod kinds;
mod pipeline;
mod ranks;
mod recompute;
mod structs;
mod units;

use meshwright::backend::cpu::CpuBackend;
use meshwright::comm::launch;
use meshwright::mesh::MeshShape;
use meshwright::nn::{Build, Built, build};
use meshwright::prelude::*;

/// Builds `M` on every rank of a mesh, and runs `body` on it.
fn on_mesh<M: Build>(mesh: &str, sizes: &Sizes, body: impl Fn(&Rank, Built<M>) + Sync) {
    let shape: MeshShape = mesh.parse().expect("the mesh of a test is well written");
    let done = launch(&shape, |comms| {
        let backend = CpuBackend::new(1).expect("a backend of one thread starts");
        let rank = Rank::new(comms, Box::new(backend), 1);
        let built = build::<M>(&rank, sizes).map_err(|error| error.to_string())?;
        body(&rank, built);
        Ok::<(), String>(())
    });
    if let Err(error) = done {
        panic!("{error}");
    }
}

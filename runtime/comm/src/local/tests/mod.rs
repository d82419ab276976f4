//! Tests of the engine through its public interface.

mod bf16;
mod faults;
mod in_place;
mod message_identity;
mod messages;
mod mismatches;
mod stress;
mod times;
mod traces;

use crate::{CommError, Communicator, LaunchError, RankComms, launch};
use meshwright_mesh::MeshShape;
use meshwright_mesh::{AxisId, AxisSet};

const TP: AxisSet = AxisSet::of(AxisId::Tp);

fn mesh(ranks: usize) -> MeshShape {
    MeshShape::new([(AxisId::Tp, ranks)]).unwrap()
}

/// Runs `body` on `ranks` ranks with their communicator, and returns the results.
fn on_ranks<T: Send>(
    ranks: usize,
    body: impl Fn(&Communicator) -> Result<T, CommError> + Sync,
) -> Vec<T> {
    launch(&mesh(ranks), |comms| body(&comms.group(TP))).unwrap_or_else(|error| panic!("{error}"))
}

/// The failures of `body`, which must fail on some rank.
fn failures_of(
    ranks: usize,
    body: impl Fn(RankComms) -> Result<(), CommError> + Sync,
) -> LaunchError<CommError> {
    launch(&mesh(ranks), body).expect_err("some rank fails")
}

/// The data of a rank: irregular, so that the order of additions shows in the last bits.
fn data(rank: usize, len: usize) -> Vec<f32> {
    let value = |i: usize| ((i * 31 + rank * 17 + 3) as f32 * 0.377).sin();
    (0..len).map(|i| value(i) * 10f32.powi(i as i32 % 5)).collect()
}

fn tokens(rank: usize, len: usize) -> Vec<u32> {
    (0..len).map(|i| (rank * 1_000_003 + i * 7) as u32).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

//! Seconds of collectives and messages: a latency, and bytes divided by a bandwidth.
//!
//! A collective takes the time of its fastest algorithm, as the library chooses it. Payloads are those of
//! [`CommCall::bytes`](crate::CommCall::bytes): of `n` ranks, a rank sends `(n-1)/n` of the whole in a gather or a
//! reduce-scatter, and twice that in an all-reduce. Formulas of algorithms: Thakur, Rabenseifner and Gropp,
//! *Optimization of collective communication operations in MPICH* (2005).

use crate::cluster::Level;
use crate::record::CallKind;

use super::group::Stage;

/// Ranks above which reductions in the network are faster.
const IN_NETWORK_RANKS: f64 = 4.0;

/// Returns the seconds of a collective whose ranks send `bytes` each over `stages`; 0 for one rank.
pub fn collective_seconds(op: CallKind, bytes: f64, stages: &[Stage<'_>]) -> f64 {
    if stages.is_empty() {
        return 0.0;
    }
    let ranks = ranks(stages);
    let whole = bytes * ranks / (ranks - 1.0);
    match op {
        CallKind::AllReduce => all_reduce(stages, whole / 2.0),
        CallKind::AllToAll => all_to_all(stages, bytes),
        _ => (latency(stages) + pipelined(stages, bytes)).min(hierarchical(stages, whole)),
    }
}

/// Returns the seconds of a message of `bytes` between two ranks that `level` connects.
pub fn message_seconds(level: &Level, bytes: f64) -> f64 {
    level.latency.value + bytes / level.message_bandwidth.value
}

/// Returns the seconds of an all-reduce of `whole` bytes.
fn all_reduce(stages: &[Stage<'_>], whole: f64) -> f64 {
    let ranks = ranks(stages);
    let tree = latency(stages) + pipelined(stages, 2.0 * whole);
    // A reduce-scatter, then a gather.
    let ring = 2.0 * latency(stages) + pipelined(stages, 2.0 * (ranks - 1.0) / ranks * whole);
    let flat = tree.min(ring);
    match stages {
        [only] if is_in_network(only) => flat.min(only.latency() + 2.0 * reduced_part(only, whole)),
        [] | [_] => flat,
        [inner @ .., outermost] => {
            // A reduce-scatter and a gather of each inner level around the all-reduce of its shards.
            let level = |stage: &Stage<'_>| 2.0 * (stage.latency() + reduced_part(stage, whole));
            let outermost = all_reduce(std::slice::from_ref(outermost), whole);
            flat.min(inner.iter().map(level).sum::<f64>() + outermost)
        }
    }
}

/// Returns the seconds of an all-to-all of even parts. A link of a level carries all bytes that leave the level inside.
fn all_to_all(stages: &[Stage<'_>], bytes: f64) -> f64 {
    let ranks = ranks(stages);
    let level = |stage: &Stage<'_>| {
        bytes * (ranks - stage.inside) / (ranks - 1.0) / stage.level.collective_bandwidth.value
    };
    latency(stages) + stages.iter().map(level).fold(0.0, f64::max)
}

/// Returns the seconds of a gather or reduce-scatter of `whole` bytes by levels: each moves the shards of the ones
/// inside.
fn hierarchical(stages: &[Stage<'_>], whole: f64) -> f64 {
    let level = |stage: &Stage<'_>| {
        stage.latency() + part_seconds(stage, whole, stage.level.collective_bandwidth.value)
    };
    stages.iter().map(level).sum()
}

/// Returns the seconds in which each rank passes `bytes` on in small pieces, through all levels at a time. All ranks of
/// a level inside share the bytes that leave it.
fn pipelined(stages: &[Stage<'_>], bytes: f64) -> f64 {
    let level = |stage: &Stage<'_>| bytes / stage.inside / stage.level.collective_bandwidth.value;
    stages.iter().map(level).fold(0.0, f64::max)
}

/// Returns the seconds in which a level gathers or reduces the shards of the level inside of `whole` bytes.
fn part_seconds(stage: &Stage<'_>, whole: f64, bandwidth: f64) -> f64 {
    (stage.groups - 1.0) / stage.groups * whole / stage.inside / bandwidth
}

/// Returns the seconds of a level of an all-reduce, in each direction, with reductions in the network if it has them.
fn reduced_part(stage: &Stage<'_>, whole: f64) -> f64 {
    let Level { collective_bandwidth, all_reduce_bandwidth, .. } = stage.level;
    let in_network = all_reduce_bandwidth.as_ref().filter(|_| is_in_network(stage));
    part_seconds(stage, whole, in_network.unwrap_or(collective_bandwidth).value)
}

fn is_in_network(stage: &Stage<'_>) -> bool {
    stage.level.all_reduce_bandwidth.is_some() && stage.groups > IN_NETWORK_RANKS
}

fn latency(stages: &[Stage<'_>]) -> f64 {
    stages.iter().map(Stage::latency).sum()
}

fn ranks(stages: &[Stage<'_>]) -> f64 {
    stages.iter().map(|stage| stage.groups).product()
}

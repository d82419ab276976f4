//! Seconds of collectives and messages: a latency, and bytes divided by a bandwidth.
//!
//! A collective takes the time of its fastest algorithm, as the library chooses it. Payloads are those of
//! [`CommCall::bytes`](crate::CommCall::bytes): of `n` ranks, a rank sends `(n-1)/n` of the whole in a gather or a
//! reduce-scatter, and twice that in an all-reduce. Formulas of algorithms: Thakur, Rabenseifner and Gropp,
//! *Optimization of collective communication operations in MPICH* (2005).

use crate::cluster::Level;
use crate::record::CommOpKind;

use super::group::GroupLevel;

/// Ranks above which reductions in the network are faster.
const IN_NETWORK_RANKS: f64 = 4.0;

/// Returns the seconds of a collective whose ranks send `bytes` each over `levels`; 0 for one rank.
pub fn collective_seconds(op: CommOpKind, bytes: f64, levels: &[GroupLevel<'_>]) -> f64 {
    if levels.is_empty() {
        return 0.0;
    }
    let ranks = ranks(levels);
    let whole = bytes * ranks / (ranks - 1.0);
    match op {
        CommOpKind::AllReduce => all_reduce(levels, whole / 2.0),
        CommOpKind::AllToAll => all_to_all(levels, bytes),
        _ => (latency(levels) + pipelined(levels, bytes)).min(hierarchical(levels, whole)),
    }
}

/// Returns the seconds of a message of `bytes` between two ranks that `level` connects.
pub fn message_seconds(level: &Level, bandwidth: f64, bytes: f64) -> f64 {
    level.latency.value + bytes / bandwidth
}

/// Returns the seconds of an all-reduce of `whole` bytes.
fn all_reduce(levels: &[GroupLevel<'_>], whole: f64) -> f64 {
    let ranks = ranks(levels);
    let tree = latency(levels) + pipelined(levels, 2.0 * whole);
    // A reduce-scatter, then a gather.
    let ring = 2.0 * latency(levels) + pipelined(levels, 2.0 * (ranks - 1.0) / ranks * whole);
    let flat = tree.min(ring);
    match levels {
        [only] if is_in_network(only) => flat.min(only.latency() + 2.0 * reduced_part(only, whole)),
        [] | [_] => flat,
        [inner @ .., outermost] => {
            // A reduce-scatter and a gather of each inner level around the all-reduce of its shards.
            let level =
                |level: &GroupLevel<'_>| 2.0 * (level.latency() + reduced_part(level, whole));
            let outermost = all_reduce(std::slice::from_ref(outermost), whole);
            flat.min(inner.iter().map(level).sum::<f64>() + outermost)
        }
    }
}

/// Returns the seconds of an all-to-all of even parts. A link of a level carries all bytes that leave the level inside.
fn all_to_all(levels: &[GroupLevel<'_>], bytes: f64) -> f64 {
    let ranks = ranks(levels);
    let level =
        |level: &GroupLevel<'_>| bytes * (ranks - level.inside) / (ranks - 1.0) / level.bandwidth();
    latency(levels) + levels.iter().map(level).fold(0.0, f64::max)
}

/// Returns the seconds of a gather or reduce-scatter of `whole` bytes by levels: each moves the shards of the ones
/// inside.
fn hierarchical(levels: &[GroupLevel<'_>], whole: f64) -> f64 {
    let level =
        |level: &GroupLevel<'_>| level.latency() + part_seconds(level, whole, level.bandwidth());
    levels.iter().map(level).sum()
}

/// Returns the seconds in which each rank passes `bytes` on in small pieces, through all levels at a time. All ranks of
/// a level inside share the bytes that leave it.
fn pipelined(levels: &[GroupLevel<'_>], bytes: f64) -> f64 {
    let level = |level: &GroupLevel<'_>| bytes / level.inside / level.bandwidth();
    levels.iter().map(level).fold(0.0, f64::max)
}

/// Returns the seconds in which a level gathers or reduces the shards of the level inside of `whole` bytes.
fn part_seconds(level: &GroupLevel<'_>, whole: f64, bandwidth: f64) -> f64 {
    (level.groups - 1.0) / level.groups * whole / level.inside / bandwidth
}

/// Returns the seconds of a level of an all-reduce, in each direction, with reductions in the network if it has them.
fn reduced_part(level: &GroupLevel<'_>, whole: f64) -> f64 {
    let Level { collective_bandwidth, all_reduce_bandwidth, .. } = level.level;
    let in_network = all_reduce_bandwidth.as_ref().filter(|_| is_in_network(level));
    part_seconds(level, whole, in_network.unwrap_or(collective_bandwidth).value)
}

fn is_in_network(level: &GroupLevel<'_>) -> bool {
    level.level.all_reduce_bandwidth.is_some() && level.groups > IN_NETWORK_RANKS
}

fn latency(levels: &[GroupLevel<'_>]) -> f64 {
    levels.iter().map(GroupLevel::latency).sum()
}

fn ranks(levels: &[GroupLevel<'_>]) -> f64 {
    levels.iter().map(|level| level.groups).product()
}

//! Levels of an interconnect.

use super::Figure;

/// A level of an interconnect: a node, a rack, a pod, the whole cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    /// The name: `node`.
    pub name: String,
    /// GPUs of a group of this level; a multiple of the size of the level inside. The last level of a cluster of any
    /// number of GPUs has the largest multiple up to [`MAX_GPUS`](super::MAX_GPUS).
    pub size: usize,
    /// Bytes per second that each GPU sends to others of its group outside of the levels inside, by the data sheet.
    pub bandwidth: Figure,
    /// Bytes per second that a GPU sends in large collectives of this level ("bus bandwidth").
    pub collective_bandwidth: Figure,
    /// The same in large all-reduces of more than four ranks, if reductions in the network make them faster.
    pub all_reduce_bandwidth: Option<Figure>,
    /// Bytes per second of a large message between two ranks.
    pub message_bandwidth: Figure,
    /// Seconds that two groups of the level inside add to a collective of no bytes: the latencies of the levels of a
    /// process group are added.
    pub latency: Figure,
    /// Seconds that each doubling of these groups adds to it.
    pub latency_per_doubling: Figure,
}

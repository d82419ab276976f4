//! Levels of an interconnect.

use super::Figure;

/// A level of an interconnect: a node, a rack, a pod, the whole cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    /// Its name: `node`.
    pub name: String,
    /// GPUs of a group of this level; a multiple of those of the level inside.
    pub size: usize,
    /// Bytes per second that each GPU sends to others of its group outside of the levels inside, by the data sheet.
    pub bandwidth: Figure,
    /// Bytes per second that a GPU sends in large collectives of this level ("bus bandwidth").
    pub collective_bandwidth: Figure,
    /// The same in large all-reduces of more than four ranks, if reductions in the network make them faster.
    pub all_reduce_bandwidth: Option<Figure>,
    /// Bytes per second of a large message between two ranks.
    pub message_bandwidth: Figure,
    /// Seconds of a collective of no bytes over two groups of the level inside.
    pub latency: Figure,
    /// Seconds that each doubling of the groups adds to it.
    pub latency_per_doubling: Figure,
}

//! The state that each replica keeps for itself, if the replicas along `dp` train apart: its tensors have the replica
//! in the name of their kind, in which no rule can have a dash.

use std::collections::BTreeSet;

use crate::checkpoint::{Checkpoint, Manifest};
use meshwright_core::tensor::Rank;

/// The part of a kind before the number of the replica.
const SEPARATOR: &str = "-replica";

/// Returns the kind of the state of `kind` that a replica keeps; of state that all replicas share, `kind`.
pub fn kind_of_replica(kind: &str, replica: Option<usize>) -> String {
    replica.map_or_else(|| kind.to_owned(), |replica| format!("{kind}{SEPARATOR}{replica}"))
}

/// Returns the kind of state that a rule has, without the replica that keeps it.
pub fn without_replica(kind: &str) -> &str {
    kind.split_once(SEPARATOR).map_or(kind, |(kind, _)| kind)
}

/// Returns the number of replicas whose own state a checkpoint holds: 0 if all replicas share it, or have none.
pub fn replicas_in(checkpoint: &Checkpoint) -> usize {
    let kinds = checkpoint.manifest().tensors.keys().map(|name| Manifest::kind_of(name));
    let replicas: BTreeSet<&str> =
        kinds.filter_map(|kind| Some(kind.split_once(SEPARATOR)?.1)).collect();
    replicas.len()
}

/// Returns the replica whose state `rank` keeps; `None` if all share one.
pub(super) fn replica_of(rank: &Rank) -> Option<usize> {
    (rank.replicas() > 1).then(|| rank.replica())
}

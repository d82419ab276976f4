//! Bytes that a step sends over each set of axes, and the levels of the network that carry them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use meshwright_mesh::{AxisSet, MeshShape};

use crate::cluster::Cluster;
use crate::record::{CommOpKind, EventKind, StepLog};
use crate::time::{group_levels, level_between};

/// The traffic of a step over one set of axes.
#[derive(Debug, Clone, PartialEq)]
pub struct AxisTraffic {
    /// The axes of the process group.
    pub axes: AxisSet,
    /// Bytes that a GPU sends in a step, as the mean over the positions along `pp`.
    pub bytes: f64,
    /// Names of the levels that the group or its messages use, the innermost first.
    pub levels: Vec<String>,
}

/// Returns the traffic of a step over all sets of axes that send bytes, the most first, from the logs of all positions
/// along `pp`. Ranks of the mesh fill the cluster in their order.
pub fn traffic(cluster: &Cluster, mesh: &MeshShape, logs: &[Arc<StepLog>]) -> Vec<AxisTraffic> {
    let mut sums: HashMap<AxisSet, (u64, BTreeSet<usize>)> = HashMap::new();
    for log in logs {
        for (axes, bytes, _) in log.sent() {
            sums.entry(axes).or_default().0 += bytes;
        }
    }
    for (axes, level) in levels_of_calls(cluster, mesh, logs) {
        sums.entry(axes).or_default().1.insert(level);
    }
    let mut all: Vec<AxisTraffic> = sums
        .into_iter()
        .filter(|(_, (bytes, _))| *bytes > 0)
        .map(|(axes, (bytes, levels))| {
            let bytes = bytes as f64 / logs.len() as f64;
            let levels = levels.into_iter().map(|idx| cluster.levels[idx].name.clone());
            AxisTraffic { axes, bytes, levels: levels.collect() }
        })
        .collect();
    all.sort_by(|a, b| b.bytes.total_cmp(&a.bytes).then_with(|| a.axes.cmp(&b.axes)));
    all
}

/// Returns the levels, by index, that collectives and messages over each set of axes use.
fn levels_of_calls(
    cluster: &Cluster,
    mesh: &MeshShape,
    logs: &[Arc<StepLog>],
) -> BTreeSet<(AxisSet, usize)> {
    let levels = &cluster.levels;
    let mut groups = BTreeSet::new();
    let mut ends: HashMap<_, [Option<usize>; 2]> = HashMap::new();
    let mut pairs = BTreeSet::new();
    for (position, log) in logs.iter().enumerate() {
        for event in log.events.iter() {
            let EventKind::Call(call) = event.kind else { continue };
            let end = usize::from(call.op == CommOpKind::Recv);
            match call.message {
                Some(message) => {
                    let message = log.messages[message as usize];
                    let known: &mut [Option<usize>; 2] = ends.entry(message).or_default();
                    known[end] = Some(position);
                    if let [Some(from), Some(to)] = *known {
                        pairs.insert((call.axes, [from, to]));
                    }
                }
                // A sum of tied gradients, between the ends of the pipeline.
                None if call.op.is_message() => {
                    pairs.insert((call.axes, [0, logs.len() - 1]));
                }
                None => {
                    groups.insert(call.axes);
                }
            }
        }
    }
    let of_pairs = pairs.into_iter().filter_map(|(axes, pair)| {
        let level = level_between(levels, mesh, pair)?;
        Some((axes, level))
    });
    let of_groups = groups.into_iter().flat_map(|axes| {
        let used = group_levels(levels, mesh, axes);
        let used = used
            .into_iter()
            .filter_map(|used| levels.iter().position(|level| std::ptr::eq(level, used.level)));
        used.map(move |level| (axes, level)).collect::<Vec<_>>()
    });
    of_pairs.chain(of_groups).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fixture::{LogWriter, message, unit_cluster};
    use meshwright_mesh::AxisId;

    /// Nodes of four: groups of `tp` stay inside, those of `fsdp` have ranks in both nodes of a position, and a message
    /// leaves them.
    #[test]
    fn groups_and_messages_use_their_levels() {
        let mesh: MeshShape = "pp=2,fsdp=4,tp=2".parse().unwrap();
        let [tp, fsdp] = [AxisId::Tp, AxisId::Fsdp].map(AxisSet::of);
        let mut first = LogWriter::new();
        first.start(CommOpKind::AllGather, fsdp, 300);
        first.blocking(CommOpKind::AllReduce, tp, 40);
        first.message(CommOpKind::Send, message(0, 0), 8);
        let mut last = LogWriter::new();
        last.message(CommOpKind::Recv, message(0, 0), 8);
        last.blocking(CommOpKind::AllReduce, tp, 60);
        let found = traffic(&unit_cluster(4), &mesh, &[first.finish(), last.finish()]);
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        assert_eq!(
            found,
            [
                AxisTraffic { axes: fsdp, bytes: 150.0, levels: names(&["node", "cluster"]) },
                AxisTraffic { axes: tp, bytes: 50.0, levels: names(&["node"]) },
                AxisTraffic { axes: AxisSet::ALL, bytes: 4.0, levels: names(&["cluster"]) },
            ]
        );
    }
}

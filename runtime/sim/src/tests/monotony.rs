//! Times never fall when there is more to do, in random cases.

use std::sync::Arc;

use meshwright_mesh::{AxisId, AxisSet, MeshShape};

use super::fixture::{LogWriter, Numbers, figure, level, message, plain, unit_cluster};
use crate::cluster::Cluster;
use crate::time::Times;
use crate::{CommCall, CommOpKind, SimOptions, SoftwareFactors, StepLog, simulate};

const CASES: usize = 2_000;

const OPS: [CommOpKind; 6] = [
    CommOpKind::AllReduce,
    CommOpKind::AllGather,
    CommOpKind::ReduceScatter,
    CommOpKind::AllToAll,
    CommOpKind::Broadcast,
    CommOpKind::Barrier,
];

/// A cluster of nodes, racks and a network, each no faster than the level inside.
fn random_cluster(numbers: &mut Numbers) -> Cluster {
    let mut cluster = unit_cluster(8);
    let node = 1 << (1 + numbers.below(3));
    let rack = node << (1 + numbers.below(3));
    let bandwidth = numbers.between(100e9, 900e9);
    let latency = numbers.between(1e-6, 30e-6);
    let mut levels = vec![level("node", node, bandwidth, latency)];
    let slower = numbers.between(5e9, bandwidth);
    levels.push(level("rack", rack, slower, numbers.between(latency, 100e-6)));
    let slowest = numbers.between(1e9, slower);
    levels.push(level("cluster", usize::MAX, slowest, numbers.between(200e-6, 300e-6)));
    // A group that is spread over twice as many nodes loses latencies of the levels inside, and adds one of these.
    levels[1].latency_per_doubling = figure(numbers.between(100e-6, 200e-6));
    levels[2].latency_per_doubling = figure(numbers.between(200e-6, 400e-6));
    if numbers.below(2) == 0 {
        levels[0].all_reduce_bandwidth = Some(figure(numbers.between(bandwidth, 2.0 * bandwidth)));
    }
    cluster.levels = levels;
    cluster
}

fn seconds(cluster: &Cluster, mesh: &str, op: CommOpKind, bytes: u64) -> f64 {
    let mesh: MeshShape = mesh.parse().unwrap();
    let axes = AxisSet::of(AxisId::Fsdp);
    let call = CommCall {
        number: 0,
        op,
        axes,
        group: 0,
        bytes,
        is_asynchronous: false,
        message: None,
        round: None,
        site: 0,
    };
    Times::new(cluster, &mesh).unwrap().of_collective(&call)
}

#[test]
fn more_bytes_take_no_less_time() {
    let mut numbers = Numbers(1);
    for _ in 0..CASES {
        let cluster = random_cluster(&mut numbers);
        let mesh = format!("fsdp={},tp={}", 1 + numbers.below(40), 1 + numbers.below(9));
        let op = OPS[numbers.below(OPS.len() as u64) as usize];
        let bytes = numbers.between(1.0, 1e10) as u64;
        let [few, many] =
            [0, numbers.below(1 << 30)].map(|more| seconds(&cluster, &mesh, op, bytes + more));
        assert!(few <= many, "{op:?} {mesh} {bytes}: {few} {many}");
    }
}

/// The same ranks, with fewer of them in each node.
#[test]
fn more_nodes_take_no_less_time() {
    let mut numbers = Numbers(2);
    for _ in 0..CASES {
        let cluster = random_cluster(&mut numbers);
        let (ranks, tp) = (2 << numbers.below(8), 1 << numbers.below(4));
        let op = OPS[numbers.below(OPS.len() as u64) as usize];
        let bytes = numbers.between(1.0, 1e10) as u64;
        let [close, far] =
            [tp, 2 * tp].map(|tp| seconds(&cluster, &format!("fsdp={ranks},tp={tp}"), op, bytes));
        assert!(close <= far * (1.0 + 1e-12), "{op:?} {ranks} {tp} {bytes}: {close} {far}");
    }
}

/// The same shards, gathered from twice as many nodes.
#[test]
fn more_ranks_take_no_less_time() {
    let mut numbers = Numbers(3);
    for _ in 0..CASES {
        let cluster = random_cluster(&mut numbers);
        let node = cluster.levels[0].size as u64;
        let ranks = node << numbers.below(6);
        let op = OPS[numbers.below(OPS.len() as u64) as usize];
        let whole = numbers.between(1e6, 1e10);
        let of = |ranks: u64| {
            let sent = whole * (ranks - 1) as f64 / ranks as f64;
            let sent = if op == CommOpKind::AllReduce { 2.0 * sent } else { sent };
            seconds(&cluster, &format!("fsdp={ranks}"), op, sent as u64)
        };
        // Bytes are rounded to integers.
        let (few, many) = (of(2 * ranks), of(4 * ranks));
        assert!(few <= many * (1.0 + 1e-5), "{op:?} {ranks} {whole}: {few} {many}");
    }
}

/// A step never takes less time if a kernel, a payload, interference or jitter grows.
#[test]
fn steps_take_no_less_time() {
    let mut numbers = Numbers(4);
    for _ in 0..CASES {
        let cluster = random_cluster(&mut numbers);
        let mesh: MeshShape = "pp=2,fsdp=4,tp=2".parse().unwrap();
        let seed = numbers.below(1 << 40);
        let (kind, amount) = (numbers.below(4), numbers.between(1e3, 1e9) as u64);
        let run = |grown: bool| {
            let extra = |number| if grown && kind == number { amount } else { 0 };
            let mut software = SoftwareFactors::default();
            software.interference += extra(2) as f64 * 1e-9;
            software.jitter_per_doubling += extra(3) as f64 * 1e-12;
            let options = SimOptions { software, ..plain() };
            let logs = random_logs(&mut Numbers(seed), [extra(0), extra(1)]);
            simulate(&cluster, &mesh, &logs, &options).unwrap().seconds
        };
        let (before, after) = (run(false), run(true));
        assert!(before <= after * (1.0 + 1e-12), "seed {seed}, kind {kind}: {before} {after}");
    }
}

/// The logs of two positions, the first kernel and the first payload of which are larger by `extra`.
fn random_logs(numbers: &mut Numbers, extra: [u64; 2]) -> Vec<Arc<StepLog>> {
    let [mut kernel, mut payload] = extra;
    let logs = [0, 1].map(|position| {
        let mut log = LogWriter::new();
        let mut started = Vec::new();
        for batch in 0..3 {
            if position == 1 {
                let received = log.message(CommOpKind::Recv, message(0, batch), 1 << 20);
                log.wait(received);
            }
            for _ in 0..4 {
                let axes = AxisSet::of([AxisId::Fsdp, AxisId::Tp][numbers.below(2) as usize]);
                let op = OPS[numbers.below(OPS.len() as u64) as usize];
                let bytes = numbers.between(1.0, 1e9) as u64 + std::mem::take(&mut payload);
                match numbers.below(3) {
                    0 => drop(log.blocking(op, axes, bytes)),
                    1 => started.push(log.start(op, axes, bytes)),
                    _ => started.pop().into_iter().for_each(|call| log.wait(call)),
                }
                log.map(numbers.below(3) + std::mem::take(&mut kernel));
            }
            if position == 0 {
                log.message(CommOpKind::Send, message(0, batch), 1 << 20);
            }
        }
        started.into_iter().for_each(|call| log.wait(call));
        log.blocking(CommOpKind::AllReduce, AxisSet::ALL, 8);
        log.finish()
    });
    logs.into()
}

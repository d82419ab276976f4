//! Streams, waits and their order.

use std::sync::Arc;

use meshwright_backend::KernelOp;
use meshwright_mesh::{AxisId, AxisSet};

use super::fixture::{LogWriter, figure, plain, unit_cluster};
use crate::cluster::Cluster;
use crate::{
    CommOpKind, PositionTime, SimOptions, SimulatedStep, SoftwareFactors, StepLog, simulate,
};

const TP: AxisSet = AxisSet::of(AxisId::Tp);
const DP: AxisSet = AxisSet::of(AxisId::Dp);

fn run_on(cluster: &Cluster, log: LogWriter, options: &SimOptions) -> SimulatedStep {
    let log: Arc<StepLog> = log.finish();
    simulate(cluster, &"dp=2,tp=2".parse().unwrap(), &[log], options).unwrap()
}

fn run(log: LogWriter) -> (f64, PositionTime) {
    let step = run_on(&unit_cluster(8), log, &plain());
    (step.seconds, step.positions[0].clone())
}

#[test]
fn blocking_calls_are_exposed() {
    let mut log = LogWriter::new();
    log.map(10);
    log.blocking(CommOpKind::AllGather, TP, 7);
    log.map(5);
    let (seconds, position) = run(log);
    assert_eq!(seconds, 22.0);
    assert_eq!(position.exposed, [(TP, 7.0)]);
    assert_eq!(position.computed(), 15.0);
}

/// A call overlaps with kernels up to its wait, starts after the kernels before it, and is exposed for the rest.
#[test]
fn asynchronous_calls_overlap_kernels() {
    let mut log = LogWriter::new();
    log.map(10);
    let gather = log.start(CommOpKind::AllGather, TP, 7);
    log.map(5);
    log.wait(gather);
    log.map(1);
    let (seconds, position) = run(log);
    assert_eq!(seconds, 18.0);
    assert_eq!(position.exposed_over(TP), 2.0);
}

#[test]
fn calls_on_one_stream_take_the_sum() {
    for (second, expected) in [(TP, 14.0), (DP, 7.0)] {
        let mut log = LogWriter::new();
        let calls = [TP, second].map(|axes| log.start(CommOpKind::AllGather, axes, 7));
        calls.into_iter().for_each(|call| log.wait(call));
        assert_eq!(run(log).0, expected);
    }
}

/// Calls of a CUDA graph are one branch in the order of the host.
#[test]
fn calls_of_a_graph_do_not_overlap() {
    let mut log = LogWriter::new();
    let calls = [TP, DP].map(|axes| log.start(CommOpKind::AllGather, axes, 7));
    log.map(3);
    calls.into_iter().for_each(|call| log.wait(call));
    let options = SimOptions { cuda_graphs: true, ..plain() };
    assert_eq!(run_on(&unit_cluster(8), log, &options).seconds, 14.0);
}

#[test]
fn a_call_of_no_bytes_takes_its_latency() {
    let mut cluster = unit_cluster(2);
    cluster.levels[0].latency = figure(0.25);
    cluster.levels[1].latency = figure(4.0);
    for op in
        [CommOpKind::AllGather, CommOpKind::AllReduce, CommOpKind::AllToAll, CommOpKind::Barrier]
    {
        for (axes, expected) in [(TP, 0.25), (DP, 4.0), (TP.union(DP), 4.25)] {
            let mut log = LogWriter::new();
            log.blocking(op, axes, 0);
            assert_eq!(run_on(&cluster, log, &plain()).seconds, expected, "{op:?} {axes}");
        }
    }
}

/// A gather that the step before has started is awaited at the begin of a step, as with ZeRO stage 3.
#[test]
fn calls_of_the_previous_step_are_awaited() {
    let mut log = LogWriter::new();
    log.map(2);
    // The log has one more call before, so numbers are not indices of gathers.
    log.blocking(CommOpKind::AllGather, TP, 1);
    log.wait_for_previous_step(1);
    log.map(5);
    log.start(CommOpKind::AllGather, DP, 9);
    let (seconds, position) = run(log);
    assert_eq!(position.exposed_over(DP), 6.0);
    assert_eq!(seconds, 14.0);
}

/// Kernels beside a collective take 1 + x as long, for the overlapped part only.
#[test]
fn collectives_slow_kernels() {
    let mut log = LogWriter::new();
    let gather = log.start(CommOpKind::AllGather, TP, 6);
    log.map(10);
    log.wait(gather);
    let software = SoftwareFactors { interference: 0.5, jitter_per_doubling: 0.0 };
    let options = SimOptions { software, ..SimOptions::default() };
    // In the first 6 seconds, 4 seconds of work are done.
    let step = run_on(&unit_cluster(8), log, &options);
    assert_eq!(step.seconds, 12.0);
    assert_eq!(step.positions[0].computed(), 12.0);
}

/// Two collectives at different times slow a kernel twice; a kernel between them is not slowed.
#[test]
fn every_collective_slows_its_part() {
    let mut log = LogWriter::new();
    log.start(CommOpKind::AllGather, TP, 3);
    log.map(2);
    log.map(4);
    let second = log.start(CommOpKind::AllGather, DP, 3);
    log.map(1);
    log.map(4);
    log.wait(second);
    let software = SoftwareFactors { interference: 0.5, jitter_per_doubling: 0.0 };
    let options = SimOptions { software, ..SimOptions::default() };
    assert_eq!(run_on(&unit_cluster(8), log, &options).seconds, 13.0);
}

#[test]
fn jitter_grows_with_nodes() {
    let software = SoftwareFactors { interference: 0.0, jitter_per_doubling: 0.002 };
    let options = SimOptions { software, ..SimOptions::default() };
    for (node, factor) in [(4, 1.0), (2, 1.002), (1, 1.004)] {
        let mut log = LogWriter::new();
        log.map(10);
        let step = run_on(&unit_cluster(node), log, &options);
        assert!((step.seconds - 10.0 * factor).abs() < 1e-12);
        assert!((step.positions[0].total() - step.seconds).abs() < 1e-12);
    }
}

/// The compute stream is not fed faster than the host launches, until it reads a result.
#[test]
fn launches_limit_small_kernels() {
    let mut cluster = unit_cluster(8);
    let gpu = Arc::make_mut(&mut cluster.gpu);
    gpu.launch = [figure(3.0), figure(0.5)];
    let log = || {
        let mut log = LogWriter::new();
        (0..4).for_each(|_| log.map(1));
        log.kernel(KernelOp::Download, 1);
        log
    };
    let eager = run_on(&cluster, log(), &plain());
    assert_eq!(eager.seconds, 16.0);
    assert_eq!(eager.positions[0].launches, 11.0);
    let graphs = run_on(&cluster, log(), &SimOptions { cuda_graphs: true, ..plain() });
    assert_eq!(graphs.seconds, 5.5);
}

/// Copies to the host overlap with kernels; a fetch does not, and waits for the copies before it.
#[test]
fn transfers_have_a_stream() {
    let mut log = LogWriter::new();
    log.kernel(KernelOp::CopyOut, 4);
    log.map(3);
    log.kernel(KernelOp::CopyIn, 5);
    log.map(1);
    let (seconds, position) = run(log);
    assert_eq!(seconds, 10.0);
    assert_eq!(position.transfers, 6.0);
    // The second copy waits for the end of the first one, whose memory is freed.
    let mut log = LogWriter::new();
    log.kernel(KernelOp::CopyOut, 4);
    log.kernel(KernelOp::CopyOut, 1);
    log.map(3);
    log.kernel(KernelOp::CopyIn, 0);
    assert_eq!(run(log).0, 7.0);
}

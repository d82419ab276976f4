//! Faulty logs and meshes.

use std::sync::Arc;

use meshwright_backend::{DType, Kernel, KernelOp};
use meshwright_mesh::AxisSet;

use super::fixture::{LogWriter, message, plain, unit_cluster};
use crate::{BlockedPosition, CommOpKind, EventKind, SimError, StepLog, simulate};

fn error(mesh: &str, logs: &[Arc<StepLog>]) -> SimError {
    simulate(&unit_cluster(8), &mesh.parse().unwrap(), logs, &plain()).unwrap_err()
}

/// Two positions receive before they send.
#[test]
fn a_deadlock_names_positions_and_events() {
    let logs = [0, 1].map(|position| {
        let mut log = LogWriter::new();
        log.map(1);
        let received = log.message(CommOpKind::Recv, message(1 - position, 3), 0);
        log.wait(received);
        log.message(CommOpKind::Send, message(position, 3), 0);
        log.finish()
    });
    let call = |from: usize| {
        format!("activation of micro-batch 3 from stage {from} to stage {}, part 0", from + 1)
    };
    let blocked =
        [1, 0].map(|from| BlockedPosition { position: 1 - from, event: 2, call: call(from) });
    let error = error("pp=2", &logs);
    let SimError::Deadlock(found) = &error else { panic!("{error}") };
    assert_eq!(found[..], blocked);
    assert_eq!(
        error.to_string(),
        format!(
            "the step cannot end: event 2 of position 0 waits for {}; event 2 of position 1 waits for {}",
            call(1),
            call(0)
        )
    );
}

/// A collective over all positions that one of them does not issue.
#[test]
fn a_missing_collective_is_a_deadlock() {
    let mut first = LogWriter::new();
    first.blocking(CommOpKind::AllReduce, AxisSet::ALL, 8);
    let mut second = LogWriter::new();
    second.map(1);
    let error = error("pp=2", &[first.finish(), second.finish()]).to_string();
    assert_eq!(
        error,
        "the step cannot end: event 0 of position 0 waits for all_reduce over the world"
    );
}

#[test]
fn messages_have_two_ends() {
    let log = |ops: &[CommOpKind]| {
        let mut log = LogWriter::new();
        for op in ops {
            log.message(*op, message(0, 0), 8);
        }
        log.finish()
    };
    let assert_unmatched = |logs: [&[CommOpKind]; 2], position: usize, event: usize| {
        let error = error("pp=2", &logs.map(log));
        let found = matches!(error, SimError::UnmatchedMessage { position: p, event: e, message: m }
            if (p, e, m) == (position, event, message(0, 0)));
        assert!(found, "{error}");
    };
    let (send, recv) = (CommOpKind::Send, CommOpKind::Recv);
    assert_unmatched([&[send], &[]], 0, 0);
    assert_unmatched([&[], &[recv]], 1, 0);
    assert_unmatched([&[send], &[send]], 1, 0);
    assert_unmatched([&[send, recv], &[]], 0, 0);
    assert_unmatched([&[send], &[recv, recv]], 1, 1);
    assert_unmatched([&[CommOpKind::AllReduce], &[]], 0, 0);
}

#[test]
fn awaited_calls_are_issued() {
    for of_previous_step in [false, true] {
        let mut log = LogWriter::new();
        log.map(1);
        log.event(EventKind::Await { number: u32::MAX, of_previous_step });
        let expected =
            "event 1 of position 0 waits for call 4294967295, which the log does not issue before";
        assert_eq!(error("1", &[log.finish()]).to_string(), expected);
    }
    // A call that is issued later.
    let mut log = LogWriter::new();
    log.wait(0);
    log.start(CommOpKind::AllGather, AxisSet::ALL, 8);
    let expected = "event 0 of position 0 waits for call 0, which the log does not issue before";
    assert_eq!(error("1", &[log.finish()]).to_string(), expected);
}

#[test]
fn a_missing_peak_names_the_dtype() {
    let mut log = LogWriter::new();
    let dims = [8; 4];
    for op in [KernelOp::Gemm, KernelOp::AttentionKernel] {
        let kernel = Kernel { op, dims, dtype: DType::Bf16, flops: 8, read: 8, written: 8 };
        log.event(EventKind::Kernel(kernel));
    }
    let error = error("1", &[log.finish()]).to_string();
    assert!(error.contains("`unit`") && error.contains("bf16"), "{error}");
}

#[test]
fn meshes_fit_the_cluster_and_the_logs() {
    let mut cluster = unit_cluster(8);
    let log = || LogWriter::new().finish();
    let mesh = "dp=16".parse().unwrap();
    assert!(simulate(&cluster, &mesh, &[log()], &plain()).is_ok());
    cluster.gpus = Some(15);
    let error = simulate(&cluster, &mesh, &[log()], &plain()).unwrap_err().to_string();
    assert_eq!(
        error,
        "the mesh dp=16 has 16 ranks, but the cluster `unit` has 15 GPUs; use a smaller mesh"
    );
    cluster.gpus = None;
    cluster.levels.clear();
    assert!(simulate(&cluster, &mesh, &[log()], &plain()).is_err());
    let alone = simulate(&cluster, &"1".parse().unwrap(), &[log()], &plain()).unwrap();
    assert_eq!(alone.seconds, 0.0);
    let error = self::error("pp=2", &[log()]).to_string();
    let expected =
        "1 logs are given, but the mesh pp=2 has 2 positions along pp; pass one log for each";
    assert_eq!(error, expected);
}

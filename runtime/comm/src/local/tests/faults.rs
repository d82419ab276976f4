//! Ranks that panic, return early or never arrive: all others get an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::{
    CommError, CommFailure, Communicator, FailureCause, LaunchOptions, PendingCall, RankComms,
    RankExit, ReduceOp, Site, launch, launch_with,
};
use meshwright_backend::{CachingAllocator, Category, DType, View, ViewMut};
use meshwright_mesh::{AxisId, AxisSet};

use super::{TP, failures_of, mesh};

/// A pseudo-random sequence, so that the points of failure differ and every run is the same.
fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) as usize
}

/// One step of every kind, small and large, synchronous, asynchronous and messages.
fn step(tp: &Communicator, step: usize, pending: &mut Vec<PendingCall>) -> Result<(), CommError> {
    let len = if step.is_multiple_of(3) { 5000 } else { 3 };
    let site = Site::here("step");
    let (next, previous) = ((tp.rank() + 1) % tp.size(), (tp.rank() + tp.size() - 1) % tp.size());
    match step % 4 {
        0 => tp.all_reduce(&site, ReduceOp::Sum, ViewMut::from(&mut vec![1f32; len][..])),
        1 => {
            let data = CachingAllocator::new().zeros(DType::F32, len, Category::Gradients);
            pending.push(tp.start_all_reduce(&site, ReduceOp::Sum, data));
            Ok(())
        }
        2 => {
            tp.send(&site, next, View::from(&vec![1f32; len][..]))?;
            tp.recv(&site, previous, ViewMut::from(&mut vec![1f32; len][..]))
        }
        _ => pending.pop().map_or(Ok(()), |pending| pending.wait().map(drop)),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    Panic,
    Error,
    Return,
}

#[test]
fn exit_at_any_point_stops_all_ranks() {
    let mut seed = 7;
    for round in 0..150 {
        let ranks = 2 + random(&mut seed) % 3;
        let (victim, at) = (random(&mut seed) % ranks, random(&mut seed) % 24);
        let fault = [Fault::Panic, Fault::Error, Fault::Return][round % 3];
        let error = failures_of(ranks, |comms| {
            let tp = comms.group(TP);
            let mut pending = Vec::new();
            for i in 0..40 {
                if comms.rank() == victim && i == at {
                    match fault {
                        Fault::Panic => panic!("no luck at {i}"),
                        Fault::Error => {
                            return Err(tp
                                .broadcast(&Site::new("bad"), 99, ViewMut::from(&mut [0f32; 1][..]))
                                .unwrap_err());
                        }
                        Fault::Return => return Ok(()),
                    }
                }
                step(&tp, i, &mut pending)?;
            }
            tp.barrier(&Site::new("end"))
        });
        // The cause first; everyone else blames it.
        let others = ranks - 1;
        let expected = if fault == Fault::Return { others } else { ranks };
        assert_eq!(error.failures.len(), expected, "{error}");
        let blamed = &error.failures[expected - others..];
        if fault != Fault::Return {
            assert_eq!(error.failures[0].rank, victim);
            assert_eq!(error.failures[0].stopped_by, None);
        }
        for failure in blamed {
            assert_eq!(failure.stopped_by, Some(victim));
            let FailureCause::Error(CommError::PeerLeft { rank, exit, .. }) = &failure.cause else {
                panic!("rank {}: {}", failure.rank, failure.cause);
            };
            assert_eq!(*rank, victim);
            match fault {
                Fault::Panic => {
                    assert!(matches!(exit, RankExit::Panicked(text) if text.contains("no luck")))
                }
                Fault::Error => {
                    assert!(matches!(exit, RankExit::Failed { error, .. } if error.contains("99")))
                }
                Fault::Return => assert_eq!(*exit, RankExit::Returned),
            }
        }
    }
}

#[test]
fn launch_error_names_cause_and_stopped_ranks() {
    let error = failures_of(3, |comms| {
        if comms.rank() == 1 {
            panic!("no luck");
        }
        comms.group(TP).barrier(&Site::here("blocks.0"))
    });
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    assert!(
        first.starts_with("rank 1 failed: panic: no luck, at ") && first.contains("faults.rs:")
    );
    assert!(text.contains("ranks 0, 2 stopped because of that"), "{text}");
    let peer = error.failures[1].cause.to_string();
    assert!(peer.starts_with("rank 1 has panicked (no luck, at"), "{peer}");
    assert!(peer.contains("barrier over tp, issued by blocks.0"), "{peer}");
    assert!(peer.ends_with("Last call of rank 1: no call yet"), "{peer}");
}

#[test]
fn root_cause_passes_through_other_groups() {
    // Rank 3 waits for 2 (tp), which waits for 0 (dp), which panics.
    let error = launch(&"dp=2,tp=2".parse().unwrap(), |comms| {
        let (dp, tp) = (comms.group(AxisSet::of(AxisId::Dp)), comms.group(TP));
        match comms.rank() {
            0 => panic!("no luck"),
            1 => Ok(()),
            2 => dp.barrier(&Site::new("dp")).and_then(|()| tp.barrier(&Site::new("tp"))),
            _ => tp.barrier(&Site::new("tp")),
        }
    })
    .expect_err("rank 0 panics");
    let ranks: Vec<_> = error.failures.iter().map(|failure| failure.rank).collect();
    assert_eq!(ranks, [0, 2, 3]);
    let text = error.failures[2].cause.to_string();
    assert!(text.starts_with("rank 0 has panicked (no luck"), "{text}");
    assert!(text.contains("It waits for rank 2, which stopped because of that"), "{text}");
}

#[test]
fn comm_failure_unwinds_through_model_code() {
    let error = failures_of(2, |comms| {
        if comms.rank() == 0 {
            return Err(CommError::Closed { rank: 0 });
        }
        let result = comms.group(TP).barrier(&Site::new("inner"));
        result.unwrap_or_else(|error| CommFailure::unwind(error));
        Ok(())
    });
    let cause = &error.failures[1].cause;
    assert!(matches!(cause, FailureCause::Comm(CommError::PeerLeft { rank: 0, .. })), "{cause}");
}

#[test]
fn out_of_memory_stops_the_other_ranks() {
    let error = failures_of(3, |comms| {
        let allocator = CachingAllocator::with_limit(if comms.rank() == 1 { 100 } else { 10_000 });
        let data = allocator.zeros(DType::F32, 100, Category::Activations);
        drop(comms.group(TP).start_all_reduce(&Site::new("sum"), ReduceOp::Sum, data).wait()?);
        Ok(())
    });
    let FailureCause::OutOfMemory(first) = &error.failures[0].cause else {
        panic!("{error}");
    };
    assert_eq!((error.failures[0].rank, first.requested, first.limit), (1, 448, Some(100)));
    for failure in &error.failures[1..] {
        let cause = &failure.cause;
        assert!(
            matches!(cause, FailureCause::Error(CommError::PeerLeft { rank: 1, .. })),
            "{cause}"
        );
    }
    assert_eq!(
        error.to_string(),
        "rank 1 failed: out of memory: 448 B of activations do not fit in addition to the 0 B in use; the limit is 100 \
         B\n\
         ranks 0, 2 stopped because of that"
    );
}

#[test]
fn asynchronous_calls_outlive_their_rank() {
    let sums = launch(&mesh(3), |comms| {
        let tp = comms.group(TP);
        let data = CachingAllocator::new().copy_of(&[1f32; 9], Category::Gradients);
        let pending = tp.start_all_reduce(&Site::new("grad"), ReduceOp::Sum, data);
        if comms.rank() == 0 {
            // Leaves with the call under way, and without its result.
            return Ok(0.0);
        }
        pending.wait().map(|data| data.typed::<f32>()[8])
    });
    assert_eq!(
        sums.unwrap_or_else(|e: crate::LaunchError<CommError>| panic!("{e}")),
        [0.0, 3.0, 3.0]
    );
}

#[test]
fn communicator_is_closed_after_its_rank() {
    let kept = launch(&mesh(2), |comms| Ok::<_, CommError>(comms.group(TP))).unwrap();
    let site = Site::new("late");
    assert!(matches!(kept[0].barrier(&site), Err(CommError::Closed { rank: 0 })));
    assert!(matches!(
        kept[1].send(&site, 0, View::from(&[0f32][..])),
        Err(CommError::Closed { rank: 1 } | CommError::PeerLeft { .. })
    ));
    let data = CachingAllocator::new().zeros(DType::F32, 1, Category::Gradients);
    let pending = kept[0].start_all_reduce(&site, ReduceOp::Sum, data);
    assert!(matches!(pending.wait(), Err(CommError::Closed { rank: 0 })));
}

#[test]
fn timeout_names_the_missing_rank() {
    let options = LaunchOptions { timeout: Duration::from_millis(30), ..LaunchOptions::default() };
    type Wait = fn(&Communicator) -> Result<(), CommError>;
    let waits: [Wait; 3] = [
        |tp| tp.barrier(&Site::here("waits")),
        |tp| tp.recv(&Site::here("waits"), 1, ViewMut::from(&mut [0f32; 2][..])),
        |tp| {
            let data = CachingAllocator::new().zeros(DType::F32, 4, Category::Gradients);
            tp.start_all_reduce(&Site::here("waits"), ReduceOp::Sum, data).wait().map(drop)
        },
    ];
    for wait in waits {
        let given_up = Arc::new(AtomicBool::new(false));
        let start = Instant::now();
        let error = launch_with(&options, &mesh(2), |comms| {
            let tp = comms.group(TP);
            if comms.rank() == 0 {
                let result = wait(&tp);
                given_up.store(true, Ordering::Release);
                return result;
            }
            // Busy with something else until the other rank has given up.
            while !given_up.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            tp.barrier(&Site::here("late"))
        })
        .expect_err("rank 0 gives up");
        assert!(start.elapsed() >= options.timeout);
        assert_eq!(error.failures.len(), 2);
        for failure in &error.failures {
            let FailureCause::Error(CommError::Timeout { missing, last_calls, .. }) =
                &failure.cause
            else {
                panic!("rank {}: {}", failure.rank, failure.cause);
            };
            assert_eq!(*missing, [1]);
            assert!(
                last_calls.contains("rank 0: ") && last_calls.contains("waits"),
                "{last_calls}"
            );
            assert!(last_calls.contains("rank 1: no call yet"), "{last_calls}");
        }
    }
}

#[test]
fn deadlock_is_detected() {
    type Body = fn(&RankComms, &Site) -> Result<(), CommError>;
    let cases: [Body; 4] = [
        // Two groups in different orders.
        |comms, site| {
            let (dp, tp) = (comms.group(AxisSet::of(AxisId::Dp)), comms.group(TP));
            if comms.rank() % 3 == 0 {
                dp.barrier(site).and_then(|()| tp.barrier(site))
            } else {
                tp.barrier(site).and_then(|()| dp.barrier(site))
            }
        },
        // Everyone receives first.
        |comms, site| {
            let (world, next) = (comms.world(), (comms.rank() + 1) % 4);
            world.recv(site, (comms.rank() + 3) % 4, ViewMut::from(&mut [0f32][..]))?;
            world.send(site, next, View::from(&[0f32][..]))
        },
        // An asynchronous call that the others have not issued yet.
        |comms, site| {
            let world = comms.world();
            let start = || {
                let data = CachingAllocator::new().zeros(DType::F32, 3, Category::Gradients);
                world.start_all_reduce(site, ReduceOp::Sum, data)
            };
            if comms.rank() == 0 {
                start().wait()?;
                return world.barrier(site);
            }
            world.barrier(site)?;
            start().wait().map(drop)
        },
        // One rank has returned, and has no part in it.
        |comms, site| {
            let (dp, tp) = (comms.group(AxisSet::of(AxisId::Dp)), comms.world());
            let rank = comms.rank();
            match rank {
                3 => Ok(()),
                // 0 waits for 1, which waits for 2, which waits for 0.
                0 => tp.recv(site, 1, ViewMut::from(&mut [0f32][..])),
                1 => tp.recv(site, 2, ViewMut::from(&mut [0f32][..])),
                _ => dp.recv(site, 0, ViewMut::from(&mut [0f32][..])),
            }
        },
    ];
    for (case, body) in cases.iter().enumerate() {
        let shape = "dp=2,tp=2".parse().unwrap();
        let error = launch(&shape, |comms| body(&comms, &Site::here("ring"))).expect_err("stuck");
        assert_eq!(error.failures.len(), if case == 3 { 3 } else { 4 }, "{error}");
        for failure in &error.failures {
            let FailureCause::Error(CommError::Deadlock { calls }) = &failure.cause else {
                panic!("case {case}, rank {}: {}", failure.rank, failure.cause);
            };
            assert!(calls.contains(&format!("rank {}: ", failure.rank)), "{calls}");
            assert!(calls.contains("issued by ring ("), "{calls}");
        }
    }
}

/// A rank that waits for files of another one has a longer time limit, but still gets the failures of others and
/// deadlocks.
#[test]
fn an_extended_limit_keeps_failure_detection() {
    const TIMEOUT: Duration = Duration::from_millis(300);
    let options = LaunchOptions { timeout: TIMEOUT, ..LaunchOptions::default() };
    let site = Site::new("files");
    let late = |comms: &RankComms| {
        if comms.rank() == 0 {
            std::thread::sleep(3 * TIMEOUT);
        }
    };
    let waited = launch_with(&options, &mesh(2), |comms| {
        let outer = comms.extend_time_limit();
        drop(comms.extend_time_limit());
        late(&comms);
        comms.world().barrier(&site)?;
        drop(outer);
        Ok::<_, CommError>(())
    });
    waited.unwrap_or_else(|error| panic!("{error}"));

    let restored = launch_with(&options, &mesh(2), |comms| {
        drop(comms.extend_time_limit());
        late(&comms);
        comms.world().barrier(&site)
    });
    let error = restored.expect_err("rank 0 is late");
    assert!(error.to_string().contains("waited 0.3 s for ranks [0]"), "{error}");

    let failed = launch_with(&options, &mesh(2), |comms| {
        let _waits_for_files = comms.extend_time_limit();
        late(&comms);
        if comms.rank() == 0 {
            return Err(CommError::Closed { rank: 0 });
        }
        comms.world().barrier(&site)
    });
    let error = failed.expect_err("rank 0 has failed");
    assert_eq!(error.failures.len(), 2, "{error}");

    let deadlocked = launch_with(&options, &mesh(2), |comms| {
        let _waits_for_files = comms.extend_time_limit();
        comms.world().recv(&site, 1 - comms.rank(), ViewMut::from(&mut [0f32][..]))
    });
    let error = deadlocked.expect_err("both wait");
    assert!(error.to_string().contains("deadlock"), "{error}");
}

//! Asynchronous messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::{CommError, FailureCause, LaunchOptions, ReduceOp, Site, launch_with};
use meshwright_backend::{Buffer, CachingAllocator, Category, DType, View, ViewMut};

use super::{TP, failures_of, mesh, on_ranks, tokens};

pub fn buffer(values: &[u32]) -> Arc<Buffer> {
    Arc::new(CachingAllocator::new().copy_of(values, Category::Communication))
}

pub fn room(len: usize) -> Buffer {
    CachingAllocator::new().zeros(DType::U32, len, Category::Communication)
}

#[test]
fn receives_from_members_are_independent() {
    on_ranks(3, |tp| {
        let site = Site::new("x");
        match tp.rank() {
            0 => {
                let first = tp.start_recv(&site, 1, room(4));
                let second = tp.start_recv(&site, 2, room(9000));
                assert_eq!(second.wait()?.typed::<u32>(), tokens(2, 9000));
                // Only now does rank 1 send.
                tp.send(&site, 1, View::from(&[1u32][..]))?;
                assert_eq!(first.wait()?.typed::<u32>(), tokens(1, 4));
            }
            1 => {
                tp.recv(&site, 0, ViewMut::from(&mut [0u32][..]))?;
                tp.start_send(&site, 0, buffer(&tokens(1, 4))).wait()?;
            }
            _ => tp.start_send(&site, 0, buffer(&tokens(2, 9000))).wait()?,
        }
        Ok(())
    });
}

/// Messages and asynchronous collectives do not wait for each other.
#[test]
fn messages_overtake_collectives() {
    on_ranks(2, |tp| {
        let site = Site::new("x");
        let (me, other) = (tp.rank(), 1 - tp.rank());
        let grad = || CachingAllocator::new().zeros(DType::F32, 5000, Category::Gradients);
        // Rank 1 starts its collective only after the message of rank 0, which comes after that of rank 0.
        let early = (me == 0).then(|| tp.start_all_reduce(&site, ReduceOp::Sum, grad()));
        let received = tp.start_recv(&site, other, room(6000));
        if me == 0 {
            tp.start_send(&site, other, buffer(&tokens(0, 6000))).wait()?;
            received.wait()?;
        } else {
            received.wait()?;
            tp.start_send(&site, other, buffer(&tokens(1, 6000))).wait()?;
        }
        let late = (me == 1).then(|| tp.start_all_reduce(&site, ReduceOp::Sum, grad()));
        early.into_iter().chain(late).try_for_each(|pending| pending.wait().map(drop))
    });
}

#[test]
fn early_sends_are_stored_without_a_copy() {
    on_ranks(2, |tp| {
        let site = Site::new("x");
        if tp.rank() == 0 {
            let data = buffer(&tokens(0, 20_000));
            tp.start_send(&site, 1, Arc::clone(&data)).wait()?;
            assert_eq!(Arc::strong_count(&data), 2);
            tp.barrier(&site)?;
            tp.barrier(&site)?;
            assert_eq!(Arc::strong_count(&data), 1);
            assert_eq!(tp.comm_bytes(), 80_000);
        } else {
            tp.barrier(&site)?;
            let received = tp.start_recv(&site, 0, room(20_000)).wait()?;
            assert_eq!(received.typed::<u32>(), tokens(0, 20_000));
            tp.barrier(&site)?;
            let times = tp.stats().times;
            assert!(times.transfer > Duration::ZERO && times.overlapped <= times.transfer);
        }
        Ok(())
    });
}

#[test]
fn receivers_learn_the_exit_of_their_sender() {
    for panics in [false, true] {
        let error = failures_of(3, |comms| {
            let (tp, site) = (comms.group(TP), Site::here("boundary"));
            if comms.rank() == 1 {
                tp.start_send(&site, 2, buffer(&[7; 5])).wait()?;
                if panics {
                    panic!("no luck");
                }
                return Ok(());
            }
            if comms.rank() == 2 {
                // A message that was sent before the exit is received.
                assert_eq!(tp.start_recv(&site, 1, room(5)).wait()?.typed::<u32>(), [7; 5]);
            }
            let pending = tp.start_recv(&site, 1, room(5));
            std::thread::sleep(Duration::from_millis(if comms.rank() == 0 { 0 } else { 30 }));
            pending.wait().map(drop)
        });
        let blamed: Vec<_> = error.failures.iter().filter(|f| f.rank != 1).collect();
        assert_eq!(blamed.len(), 2, "{error}");
        for failure in blamed {
            let FailureCause::Error(CommError::PeerLeft { rank: 1, call, .. }) = &failure.cause
            else {
                panic!("rank {}: {}", failure.rank, failure.cause);
            };
            assert!(call.contains("asynchronous recv(u32 x 5 from rank 1)"), "{call}");
        }
    }
}

#[test]
fn mismatching_message_fails_on_both_sides() {
    for receiver_is_first in [false, true] {
        let error = failures_of(2, |comms| {
            let tp = comms.group(TP);
            let barrier = |when| if when { tp.barrier(&Site::new("order")) } else { Ok(()) };
            if comms.rank() == 0 {
                barrier(receiver_is_first)?;
                tp.start_send(&Site::here("a.norm"), 1, buffer(&[1; 5])).wait()?;
                barrier(!receiver_is_first)?;
            } else {
                barrier(!receiver_is_first)?;
                let pending = tp.start_recv(&Site::here("b.down"), 0, room(6));
                barrier(receiver_is_first)?;
                pending.wait()?;
            }
            tp.barrier(&Site::here("end"))
        });
        assert_eq!(error.failures.len(), 2);
        for failure in &error.failures {
            let text = failure.cause.to_string();
            for part in ["send(u32 x 5 to rank 1)", "recv(u32 x 6 from rank 0)", "a.norm", "b.down"]
            {
                assert!(text.contains(part), "`{part}` is not in:\n{text}");
            }
        }
    }
}

#[test]
fn missing_message_times_out() {
    let options = LaunchOptions { timeout: Duration::from_millis(30), ..LaunchOptions::default() };
    let given_up = AtomicBool::new(false);
    let error = launch_with(&options, &mesh(2), |comms| {
        let (tp, site) = (comms.group(TP), Site::here("boundary"));
        if comms.rank() == 0 {
            let result = tp.start_recv(&site, 1, room(5)).wait();
            given_up.store(true, Ordering::Release);
            return result.map(drop);
        }
        while !given_up.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        tp.start_send(&site, 0, buffer(&[1; 5])).wait()
    })
    .expect_err("rank 0 gives up");
    assert_eq!(error.failures.len(), 2);
    for failure in &error.failures {
        let FailureCause::Error(CommError::Timeout { missing, .. }) = &failure.cause else {
            panic!("rank {}: {}", failure.rank, failure.cause);
        };
        assert_eq!(*missing, [1]);
    }
}

#[test]
fn message_deadlock_is_detected() {
    let error = failures_of(3, |comms| {
        let (tp, site) = (comms.group(TP), Site::here("ring"));
        let pending = tp.start_recv(&site, (tp.rank() + 1) % 3, room(3));
        pending.wait()?;
        tp.start_send(&site, (tp.rank() + 2) % 3, buffer(&[1; 3])).wait()
    });
    assert_eq!(error.failures.len(), 3);
    for failure in &error.failures {
        let FailureCause::Error(CommError::Deadlock { calls }) = &failure.cause else {
            panic!("rank {}: {}", failure.rank, failure.cause);
        };
        assert_eq!(calls.matches("asynchronous recv(u32 x 3").count(), 3, "{calls}");
    }
}

#[test]
fn unknown_members_are_refused() {
    let error = failures_of(2, |comms| {
        let (tp, site) = (comms.group(TP), Site::here("x"));
        let text = tp.start_send(&site, 9, buffer(&[1])).wait().unwrap_err().to_string();
        assert!(text.contains("`to` is 9"), "{text}");
        let text = tp.start_recv(&site, 9, room(1)).wait().unwrap_err().to_string();
        assert!(text.contains("`from` is 9"), "{text}");
        tp.send(&site, 9, View::from(&[1u32][..]))
    });
    assert_eq!(error.failures.len(), 2);
}

#[test]
fn handles_report_completion() {
    on_ranks(2, |tp| {
        let site = Site::new("x");
        if tp.rank() == 0 {
            let pending = tp.start_recv(&site, 1, room(4));
            assert!(!pending.is_complete());
            tp.barrier(&site)?;
            tp.barrier(&site)?;
            assert!(pending.is_complete());
            assert_eq!(pending.wait()?.typed::<u32>(), tokens(1, 4));
        } else {
            tp.barrier(&site)?;
            tp.start_send(&site, 0, buffer(&tokens(1, 4))).wait()?;
            tp.barrier(&site)?;
        }
        Ok(())
    });
}

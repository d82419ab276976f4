//! Failures of computations and messages: all ranks end, with an error that names the cause.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::schedule::tests::named;
use crate::schedule::{Schedule, ScheduleKind};
use meshwright_backend::{CachingAllocator, Category};
use meshwright_comm::{
    Call, CommError, CommOp, Completion, FailureCause, LaunchError, Operands, RankComms,
};

use super::hooked_engine::{Hook, hook_messages, hook_rounds};
use super::{TestError, try_step};

/// The end of a rank at one of its computations or calls.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Death {
    Panic,
    Error,
}

/// The ways of messages: each on its own, and in rounds.
const WAYS: [fn(RankComms, Hook) -> RankComms; 2] = [hook_messages, hook_rounds];

/// Runs a step in which `rank` ends at its `position`-th computation or call. Returns `None` if it has fewer.
fn step_with_death(
    schedule: &Schedule,
    way: fn(RankComms, Hook) -> RankComms,
    (rank, position, death): (usize, usize, Death),
) -> Option<LaunchError<TestError>> {
    let passed = Arc::new(AtomicUsize::new(0));
    let step = try_step(schedule, |comms, stages| {
        if comms.rank() != rank {
            return way(comms, Arc::new(|group, call, operands| group.issue(call, operands)));
        }
        let is_due = move |passed: &AtomicUsize| {
            // After an error of the engine, later calls fail too.
            let is_due = passed.fetch_add(1, Ordering::Relaxed) >= position;
            assert!(!is_due || death == Death::Error, "the end of rank {rank}");
            is_due
        };
        let of_compute = Arc::clone(&passed);
        stages.before_compute = Box::new(move |compute| {
            if is_due(&of_compute) {
                return Err(TestError::Stage(format!("the end of rank {rank} in {compute}")));
            }
            Ok(())
        });
        let of_calls = Arc::clone(&passed);
        way(
            comms,
            Arc::new(move |group, call, operands| {
                if is_due(&of_calls) {
                    return Completion::completed(Err(
                        call.refuse(format!("the end of rank {rank}"))
                    ));
                }
                group.issue(call, operands)
            }),
        )
    });
    match step {
        Ok(_) if passed.load(Ordering::Relaxed) <= position => None,
        Ok(_) => panic!("rank {rank} ended at {position} unnoticed"),
        Err(error) => Some(error),
    }
}

/// A rank that panics or fails at any action of 1F1B ends all ranks: with its own error first, and with errors that
/// name it on the others. A rank that hangs would end by a timeout, which is another error.
#[test]
fn death_at_any_action_ends_all_ranks() {
    let schedule = named(ScheduleKind::OneFOneB, 3, 4);
    let mut deaths = 0;
    let ends = (0..3).flat_map(|rank| [(rank, Death::Panic), (rank, Death::Error)]);
    for ((rank, death), way) in ends.flat_map(|end| WAYS.map(|way| (end, way))) {
        for position in 0.. {
            let death = (rank, position, death);
            let Some(error) = step_with_death(&schedule, way, death) else { break };
            deaths += 1;
            assert_eq!(error.failures.len(), 3, "rank {rank} at {position}: {error}");
            assert_eq!(error.failures[0].rank, rank, "{error}");
            let own = error.failures[0].cause.to_string();
            assert!(own.contains(&format!("the end of rank {rank}")), "{own}");
            for failure in &error.failures[1..] {
                let FailureCause::Error(TestError::Comm(CommError::PeerLeft {
                    rank: left, ..
                })) = &failure.cause
                else {
                    panic!("rank {} at {position}: {}", failure.rank, failure.cause);
                };
                assert_eq!(*left, rank);
            }
        }
    }
    // Computations, and calls for each part of a message.
    let messages = 2 * 4 * (3 + 2);
    assert_eq!(deaths, 2 * 2 * (3 * 8 + 2 * messages));
}

/// Issues the `position`-th message of this rank after the next one to the same rank.
fn swap_messages(position: usize, was_swapped: Arc<AtomicUsize>) -> Hook {
    let sent: Mutex<HashMap<usize, usize>> = Mutex::default();
    let held = Mutex::new(None);
    Arc::new(move |group, call: &Arc<Call>, operands| {
        let CommOp::Send { to, .. } = call.op else { return group.issue(call, operands) };
        let mut sent = sent.lock().unwrap();
        let count = sent.entry(to.group_rank).or_default();
        *count += 1;
        if *count == position + 1 {
            let (src, dst) = operands.into_buffers();
            *held.lock().unwrap() = Some((to.group_rank, Arc::clone(call), src, dst));
            return Completion::completed(Ok(None));
        }
        let completion = group.issue(call, operands);
        let mut held = held.lock().unwrap();
        if let Some((_, call, src, dst)) = held.take_if(|(rank, ..)| *rank == to.group_rank) {
            was_swapped.fetch_add(1, Ordering::Relaxed);
            drop(group.issue(&call, Operands::Owned { src, dst }));
        }
        completion
    })
}

/// Two messages of a channel in the wrong order; many messages have equal sizes.
#[test]
fn swapped_messages_are_errors() {
    let mut of_equal_size = 0;
    for (kind, way) in ScheduleKind::ALL.into_iter().flat_map(|kind| WAYS.map(|way| (kind, way))) {
        let schedule = named(kind, 2, 4);
        for (rank, position) in (0..2).flat_map(|rank| (0..40).map(move |at| (rank, at))) {
            let swapped = Arc::new(AtomicUsize::new(0));
            let step = try_step(&schedule, |comms, _| {
                let pass: Hook = Arc::new(|group, call, operands| group.issue(call, operands));
                let swap = || swap_messages(position, Arc::clone(&swapped));
                let hook = if comms.rank() == rank { swap() } else { pass };
                way(comms, hook)
            });
            if swapped.load(Ordering::Relaxed) == 0 {
                // There are fewer messages, or the next one depends on the one that is held.
                continue;
            }
            let error = step.err().unwrap_or_else(|| panic!("{kind}: {rank} {position}"));
            assert_eq!(error.failures.len(), 2, "{error}");
            for failure in &error.failures {
                let FailureCause::Error(TestError::Comm(CommError::Mismatch {
                    calls, hint, ..
                })) = &failure.cause
                else {
                    panic!("{kind}, {rank} at {position}: {}", failure.cause);
                };
                assert!(hint.contains("different messages"), "{hint}");
                assert_eq!(calls.matches("of micro-batch").count(), 2, "{calls}");
                of_equal_size += usize::from(calls.matches("u32 x 8").count() == 2);
            }
        }
    }
    assert!(of_equal_size >= 60, "{of_equal_size}");
}

/// Buffers of another length than the boundary has are refused by the sender.
#[test]
fn output_of_another_length_is_refused() {
    let error = step_with_length(9).expect_err("a longer output");
    let text = error.failures[0].cause.to_string();
    let expected = "the Activation of micro-batch 0 from stage 0 to stage 1 is [u32 x 8, u32 x 8, u32 x 1], but this \
                    boundary has [u32 x 9]";
    assert!(text.contains(expected), "{text}");
    assert_eq!(error.failures.len(), 2, "{error}");
}

/// A step whose boundaries are declared with one part of this length.
fn step_with_length(len: usize) -> Result<Vec<()>, LaunchError<TestError>> {
    use crate::{MessagePart, PipelineExecutor};
    use meshwright_backend::DType;

    let schedule = super::verified(&named(ScheduleKind::OneFOneB, 2, 2));
    meshwright_comm::launch(&super::mesh(2), |comms| {
        let mut stages = super::IntegerStages::new(2);
        let parts = |_| vec![MessagePart { dtype: DType::U32, len }];
        let allocator = CachingAllocator::new();
        let executor = PipelineExecutor::new(&comms, &allocator, &schedule)?;
        let parts = executor.agree_on_parts(parts)?;
        executor.run_step(&parts, &mut stages).map(drop)
    })
}

/// A stage that runs out of memory ends the step of all ranks.
#[test]
fn full_memory_ends_all_ranks() {
    let schedule = named(ScheduleKind::OneFOneB, 3, 4);
    let step = try_step(&schedule, |comms, stages| {
        let is_short = comms.rank() == 1;
        stages.before_compute = Box::new(move |compute| {
            if is_short && compute.micro_batch == 2 {
                let full = CachingAllocator::with_limit(64);
                drop(full.zeros(meshwright_backend::DType::F32, 1000, Category::Activations));
            }
            Ok(())
        });
        comms
    });
    let error = step.err().expect("a rank is out of memory");
    assert_eq!(error.failures.len(), 3, "{error}");
    assert_eq!(error.failures[0].rank, 1, "{error}");
}

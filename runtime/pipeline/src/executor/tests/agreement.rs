//! Ranks that disagree are refused before the first step, all with one error.

use crate::schedule::tests::named;
use crate::schedule::{Message, Schedule, ScheduleKind, lower_schedule};
use crate::{ExecutorError, MessagePart, PipelineExecutor};
use meshwright_backend::{CachingAllocator, DType};
use meshwright_comm::{FailureCause, LaunchError, launch};

use super::integer_stages::boundary_parts;
use super::{mesh, verified};

fn construct(
    schedule: impl Fn(usize) -> Schedule + Sync,
    parts: impl Fn(usize, Message) -> Vec<MessagePart> + Sync,
) -> Result<Vec<Schedule>, LaunchError<ExecutorError>> {
    launch(&mesh(3), |comms| {
        let (rank, allocator) = (comms.rank(), CachingAllocator::new());
        let parts = |message| parts(rank, message);
        let executor = PipelineExecutor::new(&comms, &allocator, &verified(&schedule(rank)))?;
        executor.agree_on_parts(parts)?;
        Ok(executor.program().clone())
    })
}

fn refusal(result: Result<Vec<Schedule>, LaunchError<ExecutorError>>) -> String {
    let error = result.expect_err("ranks disagree");
    assert_eq!(error.failures.len(), 3, "{error}");
    let texts = error.failures.iter().map(|failure| match &failure.cause {
        FailureCause::Error(error) => error.to_string(),
        cause => panic!("{cause}"),
    });
    let texts: Vec<String> = texts.collect();
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    texts[0].clone()
}

fn one_f_one_b(micro_batches: usize) -> Schedule {
    named(ScheduleKind::OneFOneB, 3, micro_batches)
}

#[test]
fn lowered_schedules_run_as_they_are() {
    for lookahead in [0, 1, 4] {
        let expected = lower_schedule(&one_f_one_b(4), lookahead);
        let programs = construct(|_| expected.clone(), |_, message| boundary_parts(message));
        for program in programs.unwrap_or_else(|error| panic!("{error}")) {
            assert_eq!(program.ranks, expected.ranks);
        }
    }
}

#[test]
fn different_schedules_are_refused() {
    let parts = |_, message| boundary_parts(message);
    let text = refusal(construct(|rank| one_f_one_b(if rank == 2 { 5 } else { 4 }), parts));
    assert!(text.starts_with("ranks 0 and 2 of the axis pp have different"), "{text}");
    let other = |rank| named(ScheduleKind::ALL[usize::from(rank > 0)], 3, 4);
    let text = refusal(construct(other, parts));
    assert!(text.starts_with("ranks 0 and 1 of the axis pp have different"), "{text}");
    let other = |rank| lower_schedule(&one_f_one_b(4), usize::from(rank == 1));
    refusal(construct(other, parts));
}

#[test]
fn different_boundaries_are_refused() {
    let changed: [fn(&mut Vec<MessagePart>); 4] = [
        |parts| parts[0].len += 1,
        |parts| parts[1].dtype = DType::F32,
        |parts| parts.swap(1, 2),
        |parts| parts.truncate(2),
    ];
    for change in changed {
        let parts = |rank, message: Message| {
            let mut parts = boundary_parts(message);
            if rank == 2 && message == Message::activation(1, 3) {
                change(&mut parts);
            }
            parts
        };
        let text = refusal(construct(|_| one_f_one_b(4), parts));
        assert!(text.starts_with("rank 1 of the axis pp sends messages to rank 2"), "{text}");
    }
}

#[test]
fn unfit_schedules_are_refused() {
    let parts = |_, message| boundary_parts(message);
    let text = refusal(construct(|_| named(ScheduleKind::OneFOneB, 2, 4), parts));
    assert_eq!(text, "the schedule has 2 ranks, but the axis pp has 3: pass a schedule for pp=3");
}

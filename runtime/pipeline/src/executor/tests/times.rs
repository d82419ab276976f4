//! Makespans and memory peaks against closed formulas, in virtual time that travels with the messages.

use crate::schedule::tests::named;
use crate::schedule::{Costs, LOOKAHEAD, Schedule, ScheduleKind, lower_schedule, peaks, simulate};

use super::{RankStep, named_schedules, try_step};

const UNIT: Costs = Costs { forward: 1.0, input: 1.0, weight: 1.0, message: 0.0 };

fn timed_step(schedule: &Schedule, costs: Costs) -> Vec<RankStep> {
    let step = try_step(schedule, |comms, stages| {
        stages.costs = costs;
        comms
    });
    step.unwrap_or_else(|error| panic!("{error}"))
}

fn makespan(schedule: &Schedule, costs: Costs) -> u32 {
    timed_step(schedule, costs).iter().map(|step| step.results.end).max().unwrap()
}

/// 4 stages and 4 micro-batches use 16 of 28 time slots.
#[test]
fn four_by_four_uses_57_percent() {
    let costs = Costs { forward: 2.0, ..UNIT };
    for kind in [ScheduleKind::GPipe, ScheduleKind::OneFOneB] {
        let steps = timed_step(&named(kind, 4, 4), costs);
        let end = steps.iter().map(|step| step.results.end).max().unwrap();
        let busy: u32 = steps.iter().map(|step| step.results.busy).sum();
        assert_eq!((end, busy), (28, 4 * 16));
    }
}

#[test]
fn makespans_follow_their_formulas() {
    for (p, m) in [(2, 4), (2, 5), (3, 6), (3, 7), (4, 8), (4, 9)] {
        let expected = |kind| match kind {
            ScheduleKind::GPipe | ScheduleKind::OneFOneB => 3 * (m + p - 1),
            ScheduleKind::Interleaved => 3 * (2 * m + p - 1),
            ScheduleKind::ZeroBubbleH1 => 3 * m + p - 1,
            ScheduleKind::ZeroBubbleV | ScheduleKind::DualPipeV => 6 * m + p - 1,
        };
        for kind in ScheduleKind::ALL {
            let schedule = named(kind, p, m);
            assert_eq!(makespan(&schedule, UNIT) as usize, expected(kind), "{kind} {p} {m}");
        }
    }
}

/// The executor and the simulator agree, also for costs without a formula.
#[test]
fn makespans_agree_with_the_simulator() {
    let costs = Costs { forward: 3.0, input: 4.0, weight: 2.0, message: 0.0 };
    for schedule in named_schedules(4) {
        let simulation = simulate(&lower_schedule(&schedule, LOOKAHEAD), costs).unwrap();
        let expected = simulation.makespan() as u32;
        assert_eq!(makespan(&schedule, costs), expected, "{schedule:?}");
    }
}

#[test]
fn live_micro_batches_are_those_of_the_schedule() {
    for schedule in (2..=4).flat_map(named_schedules) {
        let steps = timed_step(&schedule, UNIT);
        for (rank, (step, peak)) in steps.iter().zip(peaks(&schedule)).enumerate() {
            let (live, pending) = (step.results.most_live, step.results.most_pending);
            assert_eq!((live, pending), (peak.live, peak.with_pending_weights), "rank {rank}");
        }
    }
}

#[test]
fn one_f_one_b_keeps_p_minus_r_micro_batches() {
    let steps = timed_step(&named(ScheduleKind::OneFOneB, 4, 8), UNIT);
    let live: Vec<usize> = steps.iter().map(|step| step.results.most_live).collect();
    assert_eq!(live, [4, 3, 2, 1]);
    let steps = timed_step(&named(ScheduleKind::GPipe, 4, 8), UNIT);
    assert!(steps.iter().all(|step| step.results.most_live == 8));
}

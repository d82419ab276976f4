//! Messages are posted in the order of the sender, in time, and few are pending.

use super::{all_schedules, named};
use crate::schedule::{
    Action, Costs, LOOKAHEAD, Schedule, ScheduleKind, Work, lower_schedule, simulate, verify,
};

/// No schedule with one computation of lookahead loses time against posting all receives at the start, and at most
/// three receives are pending.
#[test]
fn one_action_of_lookahead_is_enough() {
    for schedule in all_schedules() {
        for message in [0.0, 0.1, 0.5] {
            let costs = Costs { message, ..Costs::default() };
            let [one, all] = [LOOKAHEAD, usize::MAX]
                .map(|lookahead| simulate(&lower_schedule(&schedule, lookahead), costs).unwrap());
            assert!(one.makespan() <= all.makespan() + 1e-9, "{schedule:?} {message}");
            assert!(one.pending_receives.iter().all(|pending| *pending <= 3), "{schedule:?}");
        }
    }
}

/// Without lookahead a rank waits for the whole time of a message.
#[test]
fn no_lookahead_loses_time() {
    let costs = Costs { message: 0.5, ..Costs::default() };
    let loss = |kind| {
        let schedule = named(kind, 4, 16);
        let [none, one] =
            [0, 1].map(|n| simulate(&lower_schedule(&schedule, n), costs).unwrap().makespan());
        none / one
    };
    let losses = ScheduleKind::ALL.map(loss);
    assert!(losses.iter().all(|loss| *loss > 1.0), "{losses:?}");
}

/// Also of a schedule that is given with its messages, as a file may be.
#[test]
fn own_messages_lose_their_lookahead() {
    for schedule in all_schedules().filter(|schedule| schedule.micro_batches < 7) {
        let given = Schedule { kind: None, ..lower_schedule(&schedule, LOOKAHEAD) };
        let verified = verify(&given).unwrap();
        assert_eq!(verified.lowered(), &given);
        assert_eq!(verified.without_lookahead().ranks, lower_schedule(&schedule, 0).ranks);
    }
}

#[test]
fn a_rank_sends_itself_nothing() {
    let schedule = named(ScheduleKind::ZeroBubbleV, 2, 4);
    let lowered = lower_schedule(&schedule, LOOKAHEAD);
    // Stages 1 and 2 are both on rank 1.
    let texts: Vec<String> = lowered.ranks[1].iter().map(ToString::to_string).collect();
    assert!(!texts.iter().any(|text| text.contains("1SEND_F") || text.contains("2SEND_B")));
    assert!(texts.contains(&"1RECV_F0".to_owned()) && texts.contains(&"1SEND_B0".to_owned()));
    assert_eq!(schedule.message_pairs(), [(0, 1), (1, 0)]);
}

/// Within a stage the gradients of weights are added in ascending order of micro-batches, as without a pipeline.
#[test]
fn weight_gradients_ascend() {
    for schedule in all_schedules() {
        for stage in 0..schedule.stages() {
            let computes = schedule.ranks.iter().flatten().flat_map(|action| action.computes());
            let added = computes
                .filter(|compute| compute.stage == stage && compute.work.gives_weight_gradients());
            let added: Vec<usize> = added.map(|compute| compute.micro_batch).collect();
            assert!(added.is_sorted(), "stage {stage} of {schedule:?}");
        }
    }
}

#[test]
fn gradients_are_reduced_after_the_last_weights() {
    let lowered = lower_schedule(&named(ScheduleKind::ZeroBubbleH1, 2, 3), LOOKAHEAD);
    for (rank, actions) in lowered.ranks.iter().enumerate() {
        assert_eq!(actions.last(), Some(&Action::ReduceGrad(rank)), "{actions:?}");
        let weights = actions.iter().flat_map(|action| action.computes());
        let weights = weights.filter(|compute| compute.work == Work::BackwardWeight);
        assert!(weights.count() > 0);
    }
}

//! Rounds of messages: both ends of a message are in one round, the rounds ascend, and no timing makes ranks wait for
//! each other.

use std::collections::HashSet;

use super::{Numbers, all_schedules, named, random_order};
use crate::schedule::{
    Action, Compute, LOOKAHEAD, Lockstep, Message, Schedule, ScheduleKind, StageCosts, Work,
    lockstep, lower_schedule, verify,
};

fn even(schedule: &Schedule) -> StageCosts {
    StageCosts::even(schedule.stages())
}

/// The actions of a rank, with the actions of a round together.
fn groups(lockstep: &Lockstep, rank: usize) -> Vec<&[Action]> {
    let actions = &lockstep.program().ranks[rank];
    actions.chunk_by(|first, second| lockstep.are_in_one_round(first, second)).collect()
}

/// Runs the ranks one after the other, as far as they come. A group is over when all ranks that it has messages with
/// are at the group of the same round, and a computation when its inputs are there.
fn assert_ends(lockstep: &Lockstep) {
    let program = lockstep.program();
    let ranks = program.ranks.len();
    let groups: Vec<Vec<&[Action]>> = (0..ranks).map(|rank| groups(lockstep, rank)).collect();
    let mut positions = vec![0; ranks];
    let mut received: HashSet<Message> = HashSet::new();
    let mut computed: HashSet<Compute> = HashSet::new();
    loop {
        let mut moved = false;
        for rank in 0..ranks {
            while let Some(group) = groups[rank].get(positions[rank]) {
                if group[0].message().is_some() {
                    break;
                }
                for compute in group[0].computes() {
                    if let Some(input) = program.input_message(*compute) {
                        assert!(received.contains(&input), "`{compute}` before its input");
                    }
                    computed.insert(*compute);
                }
                (positions[rank], moved) = (positions[rank] + 1, true);
            }
        }
        let round_at = |rank: usize| -> Option<usize> {
            lockstep.round_of(groups[rank].get(positions[rank])?[0].message()?)
        };
        let next = (0..ranks).filter_map(round_at).min();
        let Some(round) = next else {
            if moved {
                continue;
            }
            break;
        };
        let at_round: Vec<usize> =
            (0..ranks).filter(|rank| round_at(*rank) == Some(round)).collect();
        let of_round = |is_send: bool| -> HashSet<Message> {
            let actions = at_round.iter().flat_map(|rank| groups[*rank][positions[*rank]]);
            let wanted = actions.filter(|action| matches!(action, Action::Send(_)) == is_send);
            wanted.filter_map(Action::message).collect()
        };
        let (sent, got) = (of_round(true), of_round(false));
        assert_eq!(sent, got, "round {round} of {program:?}");
        received.extend(got);
        at_round.iter().for_each(|rank| positions[*rank] += 1);
    }
    let is_over = (0..ranks).all(|rank| positions[rank] == groups[rank].len());
    assert!(is_over, "{positions:?} of {program:?}");
    let all = program.ranks.iter().flatten().map(|action| action.computes().len()).sum::<usize>();
    assert_eq!(computed.len(), all);
}

fn computations(schedule: &Schedule) -> Vec<Vec<Compute>> {
    let of_rank = |actions: &Vec<Action>| {
        actions.iter().flat_map(|action| action.computes().to_vec()).collect()
    };
    schedule.ranks.iter().map(of_rank).collect()
}

#[test]
fn rounds_of_named_schedules_end() {
    for schedule in all_schedules() {
        let rounds = lockstep(&schedule, &even(&schedule)).unwrap();
        assert_eq!(computations(rounds.program()), computations(&schedule));
        assert_ends(&rounds);
    }
}

/// Whatever the stages cost.
#[test]
fn rounds_of_uneven_stages_end() {
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    for schedule in all_schedules() {
        for recomputes in [false, true] {
            let costs: Vec<f64> =
                (0..schedule.stages()).map(|_| numbers.below(50) as f64).collect();
            let rounds = lockstep(&schedule, &StageCosts::new(&costs, recomputes)).unwrap();
            assert_eq!(computations(rounds.program()), computations(&schedule));
            assert_ends(&rounds);
        }
    }
}

#[test]
fn rounds_of_any_order_end() {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for round in 0..200 {
        let backward = [Work::Backward, Work::BackwardInput][round % 2];
        let schedule = random_order(&mut numbers, backward);
        assert_ends(&lockstep(&schedule, &even(&schedule)).unwrap());
    }
}

/// Messages that a schedule has already get the same rounds as lowered ones; reductions stay.
#[test]
fn own_messages_are_moved_into_rounds() {
    for kind in ScheduleKind::ALL {
        let schedule = named(kind, 4, 5);
        let lowered = lower_schedule(&schedule, LOOKAHEAD);
        let (rounds, of_lowered) = (
            lockstep(&schedule, &even(&schedule)).unwrap(),
            lockstep(&lowered, &even(&lowered)).unwrap(),
        );
        assert_eq!(computations(of_lowered.program()), computations(rounds.program()));
        let messages = |lockstep: &Lockstep| -> Vec<Vec<Action>> {
            let of_rank = |actions: &Vec<Action>| {
                actions.iter().filter(|action| action.message().is_some()).copied().collect()
            };
            lockstep.program().ranks.iter().map(of_rank).collect()
        };
        assert_eq!(messages(&of_lowered), messages(&rounds), "{kind}");
        let reductions = |schedule: &Schedule| {
            let actions = schedule.ranks.iter().flatten();
            actions.filter(|action| matches!(action, Action::ReduceGrad(_))).count()
        };
        assert_eq!(reductions(of_lowered.program()), schedule.stages());
        assert_eq!(reductions(rounds.program()), schedule.stages());
    }
}

#[test]
fn one_forward_one_backward_in_rounds() {
    let verified = verify(&named(ScheduleKind::OneFOneB, 2, 2)).unwrap();
    let rounds = verified.lockstep();
    let texts = |rank: usize| -> Vec<String> {
        let text = |group: &[Action]| {
            let actions: Vec<String> = group.iter().map(ToString::to_string).collect();
            actions.join("+")
        };
        groups(rounds, rank).into_iter().map(text).collect()
    };
    assert_eq!(
        texts(0),
        [
            "0F0",
            "0SEND_F0",
            "0F1",
            "0SEND_F1",
            "0RECV_B0",
            "0B0",
            "0RECV_B1",
            "0B1",
            "0REDUCE_GRAD"
        ]
    );
    assert_eq!(
        texts(1),
        [
            "1RECV_F0",
            // It is sent while 1F0 runs.
            "1RECV_F1",
            "1F0",
            "1B0",
            "1SEND_B0",
            "1F1",
            "1B1",
            "1REDUCE_GRAD",
            "1SEND_B1"
        ]
    );
}

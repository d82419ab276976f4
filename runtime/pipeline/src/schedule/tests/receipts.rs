//! Receipts: which messages have arrived when an answer to them is there.

use std::collections::{HashMap, HashSet};

use super::{Numbers, all_schedules, named, random_order};
use crate::schedule::{
    Action, Compute, Costs, Message, Schedule, ScheduleKind, Work, simulate, verify,
};

/// Start and end of each computation, for random costs.
fn times(schedule: &Schedule, numbers: &mut Numbers) -> HashMap<Compute, (f64, f64)> {
    let mut cost = || 1.0 + numbers.below(100) as f64;
    let costs = Costs { forward: cost(), input: cost(), weight: cost(), message: cost() };
    let simulation = simulate(schedule, costs).unwrap();
    let spans = simulation.spans.iter().flatten();
    spans.map(|span| (span.compute, (span.start, span.end))).collect()
}

/// Whatever computations take, an answer is used after the messages of its receipt were: their memory may be reused
/// then.
fn assert_in_order(schedule: &Schedule, numbers: &mut Numbers) {
    let times = times(schedule, numbers);
    let user_of: HashMap<Message, Compute> = times
        .keys()
        .filter_map(|compute| Some((schedule.input_message(*compute)?, *compute)))
        .collect();
    for rank in 0..schedule.ranks.len() {
        for (answer, messages) in schedule.receipts(rank) {
            assert_eq!(schedule.message_ranks(answer).1, rank);
            let (answered, _) = times[&user_of[&answer]];
            for message in messages {
                assert_eq!(schedule.message_ranks(message).0, rank);
                let (_, used) = times[&user_of[&message]];
                assert!(used <= answered, "{message:?} and {answer:?}");
            }
        }
    }
}

/// In the programs of channels and of rounds; CUDA graphs capture the latter.
#[test]
fn answers_come_after_the_messages_of_their_receipts() {
    let mut numbers = Numbers(5);
    let check = |schedule: &Schedule, numbers: &mut Numbers| {
        let verified = verify(schedule).unwrap();
        assert_in_order(verified.lowered(), numbers);
        assert_in_order(verified.lockstep().program(), numbers);
    };
    for schedule in all_schedules().filter(|schedule| schedule.micro_batches < 7) {
        check(&schedule, &mut numbers);
    }
    for _ in 0..50 {
        let schedule = random_order(&mut numbers, Work::BackwardInput);
        check(&schedule, &mut numbers);
    }
}

/// The most messages that a rank has sent without a receipt.
fn most_open(schedule: &Schedule, rank: usize) -> usize {
    let receipts = schedule.receipts(rank);
    let (mut open, mut most): (HashSet<Message>, usize) = Default::default();
    for action in &schedule.ranks[rank] {
        for input in action.computes().iter().filter_map(|next| schedule.input_message(*next)) {
            receipts[&input].iter().for_each(|message| assert!(open.remove(message)));
        }
        if let Action::Send(message) = action {
            assert!(open.insert(*message));
            most = most.max(open.len());
        }
    }
    most
}

/// Memory for sent messages does not grow with the number of micro-batches.
#[test]
fn few_messages_are_without_a_receipt() {
    for kind in ScheduleKind::ALL.into_iter().filter(|kind| *kind != ScheduleKind::GPipe) {
        for ranks in [2, 4] {
            let most = |micro_batches: usize| -> Vec<[usize; 2]> {
                let verified = verify(&named(kind, ranks, micro_batches)).unwrap();
                let programs = [verified.lowered(), verified.lockstep().program()];
                (0..ranks).map(|rank| programs.map(|program| most_open(program, rank))).collect()
            };
            assert_eq!(most(16), most(32), "{kind} on {ranks} ranks");
        }
    }
}

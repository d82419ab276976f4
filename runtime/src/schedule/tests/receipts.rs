//! Receipts: which messages have arrived when an answer to them is there.

use std::collections::{HashMap, HashSet};

use super::{Numbers, all_schedules, named, random_order};
use crate::schedule::{
    Action, Compute, Costs, Message, Schedule, ScheduleKind, Work, simulate, verify,
};

/// Times at which each computation begins, for random costs.
fn starts(schedule: &Schedule, costs: Costs) -> HashMap<Compute, f64> {
    let simulation = simulate(schedule, costs).unwrap();
    simulation.spans.iter().flatten().map(|span| (span.compute, span.start)).collect()
}

/// Whatever computations take, an answer is computed after the messages of its receipt were received.
fn assert_in_order(schedule: &Schedule, numbers: &mut Numbers) {
    let mut cost = || 1.0 + numbers.below(100) as f64;
    let costs = Costs { forward: cost(), input: cost(), weight: cost(), message: cost() };
    let starts = starts(schedule, costs);
    let computes = || schedule.ranks.iter().flatten().flat_map(|action| action.computes());
    let start_of = |is_it: &dyn Fn(&Compute) -> bool| {
        let compute = computes().find(|compute| is_it(compute)).expect("a verified schedule");
        starts[compute]
    };
    for rank in 0..schedule.ranks.len() {
        for (answer, messages) in schedule.receipts(rank) {
            assert_eq!(schedule.edge(answer).1, rank);
            let is_answer = |next: &Compute| schedule.output_message(*next) == Some(answer);
            let answered = start_of(&is_answer);
            for message in messages {
                assert_eq!(schedule.edge(message).0, rank);
                let uses = |next: &Compute| schedule.input_message(*next) == Some(message);
                assert!(start_of(&uses) <= answered, "{message:?} and {answer:?}");
            }
        }
    }
}

#[test]
fn answers_come_after_the_messages_of_their_receipts() {
    let mut numbers = Numbers(5);
    for schedule in all_schedules().filter(|schedule| schedule.micro_batches < 7) {
        assert_in_order(verify(&schedule).unwrap().lowered(), &mut numbers);
    }
    for _ in 0..50 {
        let schedule = random_order(&mut numbers, Work::BackwardInput);
        assert_in_order(verify(&schedule).unwrap().lowered(), &mut numbers);
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
            let most = |micro_batches: usize| -> Vec<usize> {
                let verified = verify(&named(kind, ranks, micro_batches)).unwrap();
                (0..ranks).map(|rank| most_open(verified.lowered(), rank)).collect()
            };
            assert_eq!(most(16), most(32), "{kind} on {ranks} ranks");
        }
    }
}

//! The verifier accepts every valid schedule and refuses every other one, with rank and action.

use super::{Numbers, all_schedules, mutated, named, random_order};
use crate::schedule::{
    Action, LOOKAHEAD, Schedule, ScheduleKind, Work, csv, lower_schedule, verify,
};

fn refusal(schedule: &Schedule) -> String {
    let findings = verify(schedule).expect_err("a broken schedule");
    findings.iter().map(|finding| format!("{finding}\n")).collect()
}

#[test]
fn named_schedules_pass() {
    for schedule in all_schedules() {
        let verified = verify(&schedule).unwrap_or_else(|findings| panic!("{findings:?}"));
        assert_eq!(verified.peaks().len(), schedule.ranks.len());
        verify(verified.lowered()).unwrap_or_else(|findings| panic!("{findings:?}"));
    }
}

/// Dropped, doubled and swapped actions of named schedules, with and without messages.
#[test]
fn mutations_are_refused_with_rank_and_action() {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut refused = 0;
    while refused < 1000 {
        let kind = ScheduleKind::ALL[numbers.below(ScheduleKind::ALL.len())];
        let ranks = [2, 4][numbers.below(2)];
        let micro_batches = [ranks, 2 * ranks, 2 * ranks + 1][numbers.below(3)];
        let original = match (named(kind, ranks, micro_batches), numbers.below(2)) {
            (schedule, 0) => schedule,
            (schedule, _) => lower_schedule(&schedule, LOOKAHEAD),
        };
        let mutated = mutated(&original, &mut numbers);
        // A dropped reduction is added again.
        if lower_schedule(&mutated, LOOKAHEAD) == lower_schedule(&original, LOOKAHEAD) {
            continue;
        }
        let text = refusal(&mutated);
        assert!(text.contains("rank ") && text.contains('`'), "{text}");
        refused += 1;
    }
}

#[test]
fn random_topological_orders_pass() {
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    for round in 0..200 {
        let backward = [Work::Backward, Work::BackwardInput][round % 2];
        let schedule = random_order(&mut numbers, backward);
        verify(&schedule).unwrap_or_else(|findings| panic!("{findings:?}\n{schedule:?}"));
    }
}

#[test]
fn faults_are_named() {
    let check = |csv: &str, expected: &str| {
        let text = refusal(&csv::read(csv).unwrap());
        assert!(text.contains(expected), "{csv}: {text}");
    };
    check("0F0,0B0\n1B0,1F0\n", "rank 1, action 0, `1B0`: comes before `1F0`");
    check("0F0,0W0,0I0\n1F0,1B0\n", "rank 0, action 1, `0W0`: comes before `0I0`");
    check("0F0,0B0\n1F0\n", "rank 1: `1B0` is missing");
    check("0F0,0I0\n1F0,1B0\n", "rank 0: `0W0` is missing");
    check("0F0,0F0,0B0\n1F0,1B0\n", "rank 0, action 1, `0F0`: action 0 is the same");
    check("0F0,0B0,0I0\n1F0,1B0\n", "rank 0, action 2, `0I0`: `0B0` computes that, too");
    check("0F0,0B0,1B0\n1F0\n", "rank 0, action 2, `1B0`: stage 1 is on rank 1");
    // The last rank wants the second micro-batch first, and the first rank waits for the first one.
    check(
        "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n",
        "rank 0, action 4, `0B0`, waits for `1SEND_B0`; rank 1, action 2, `1F1`, waits for `0SEND_F1`",
    );
}

#[test]
fn faults_of_messages_are_named() {
    let lowered = lower_schedule(&named(ScheduleKind::OneFOneB, 2, 2), LOOKAHEAD);
    let changed = |change: &dyn Fn(&mut Vec<Action>, &mut Vec<Action>)| {
        let mut schedule = Schedule { kind: None, ..lowered.clone() };
        let [first, second] = &mut schedule.ranks[..] else { unreachable!() };
        change(first, second);
        refusal(&schedule)
    };
    let position = |actions: &[Action], text: &str| {
        actions.iter().position(|action| action.to_string() == text).unwrap()
    };
    let text = changed(&|_, second| {
        let [a, b] = ["1RECV_F0", "1RECV_F1"].map(|text| position(second, text));
        second.swap(a, b);
    });
    assert!(text.contains("is not posted before it"), "{text}");
    let text = changed(&|first, _| {
        first.remove(position(first, "0SEND_F1"));
    });
    assert!(text.contains("rank 0: `0SEND_F1` is missing"), "{text}");
    let text = changed(&|first, _| {
        let send = first.remove(position(first, "0SEND_F0"));
        first.insert(0, send);
    });
    assert!(text.contains("`0SEND_F0`: comes before the computation that makes it"), "{text}");
}

/// Sends in another order than the receives would be taken for each other if their sizes are equal.
#[test]
fn swapped_sends_are_refused() {
    let lowered = lower_schedule(&named(ScheduleKind::GPipe, 2, 2), LOOKAHEAD);
    let mut swapped = Schedule { kind: None, ..lowered };
    let sends: Vec<usize> = (0..swapped.ranks[0].len())
        .filter(|at| matches!(swapped.ranks[0][*at], Action::Send(_)))
        .collect();
    let last = swapped.ranks[0].remove(sends[0]);
    swapped.ranks[0].insert(sends[1], last);
    let text = refusal(&swapped);
    assert!(text.contains("`1RECV_F0`: rank 0 sends `0SEND_F1` next"), "{text}");
}

#[test]
fn another_valid_order_is_not_the_named_one() {
    let mut schedule = named(ScheduleKind::OneFOneB, 2, 4);
    schedule.ranks[0] = named(ScheduleKind::GPipe, 2, 4).ranks[0].clone();
    let text = refusal(&schedule);
    assert_eq!(text, "rank 0, action 2: `0F2`, where 1f1b has `0B0`\n");
    verify(&Schedule { kind: None, ..schedule }).unwrap();
}

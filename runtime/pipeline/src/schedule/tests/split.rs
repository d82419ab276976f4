//! Split stages: the same work in the same order, with the same messages.

use super::all_schedules;
use crate::schedule::{Action, Compute, LOOKAHEAD, Schedule, Work, lower_schedule, verify};

/// Counts that differ from stage to stage.
fn counts(stages: usize) -> Vec<usize> {
    (0..stages).map(|stage| 1 + stage % 3).collect()
}

/// Returns the computations of a rank in terms of the stages before the split, each with the number of its parts.
fn joined(actions: &[Action], counts: &[usize]) -> Vec<(Compute, usize)> {
    let stage_of = |part: usize| {
        let ends = counts.iter().scan(0, |end, count| {
            *end += count;
            Some(*end)
        });
        ends.take_while(|end| *end <= part).count()
    };
    let mut joined: Vec<(Compute, usize)> = Vec::new();
    let mut last_part = None;
    for part in actions.iter().flat_map(|action| action.computes()) {
        let whole = Compute { stage: stage_of(part.stage), ..*part };
        match joined
            .last_mut()
            .filter(|(last, count)| *last == whole && *count < counts[whole.stage])
        {
            Some((_, count)) => {
                *count += 1;
                let step = if whole.work == Work::Forward { 1 } else { -1 };
                assert_eq!(last_part, part.stage.checked_add_signed(-step), "{part}");
            }
            None => joined.push((whole, 1)),
        }
        last_part = Some(part.stage);
    }
    joined
}

#[test]
fn split_stages_do_the_same() {
    for schedule in all_schedules().filter(|schedule| schedule.micro_batches <= 9) {
        let counts = counts(schedule.stages());
        let split = schedule.split_stages(&counts);
        assert_eq!(split.stages(), counts.iter().sum::<usize>());
        let verified = verify(&split).unwrap_or_else(|findings| panic!("{findings:?}"));
        let messages = |schedule: &Schedule| {
            let is_send = |action: &&Action| matches!(action, Action::Send(_));
            schedule.ranks.iter().flatten().filter(is_send).count()
        };
        assert_eq!(messages(verified.lowered()), messages(&lower_schedule(&schedule, LOOKAHEAD)));
        for (before, after) in schedule.ranks.iter().zip(&split.ranks) {
            let before = before.iter().flat_map(|action| action.computes());
            let expected: Vec<(Compute, usize)> =
                before.map(|compute| (*compute, counts[compute.stage])).collect();
            assert_eq!(joined(after, &counts), expected);
        }
    }
}

/// Messages and reductions come from the split schedule; gathers of a whole stage become gathers of its parts.
#[test]
fn lowered_schedules_are_split_too() {
    let read = crate::schedule::csv::read("0UNSHARD,0F0,0B0,0RESHARD\n1F0,1B0\n").unwrap();
    let split = lower_schedule(&read, LOOKAHEAD).split_stages(&[2, 1]);
    let texts: Vec<String> = split.ranks[0].iter().map(ToString::to_string).collect();
    let expected = ["0UNSHARD", "1UNSHARD", "0F0", "1F0", "1B0", "0B0", "0RESHARD", "1RESHARD"];
    assert_eq!(texts, expected);
    assert_eq!(split, lower_schedule(&split, LOOKAHEAD).split_stages(&[1, 1, 1]));
}

//! Pipeline schedules of PyTorch, as files that `fixtures/pytorch_schedules/generate.py` has written: they are read and
//! pass the verifier, and those with a name here are what its generator makes.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use meshwright::schedule::{Action, Message, Schedule, ScheduleKind, csv, peaks, verify};

/// Schedules that have a name here, and the stages per rank.
const NAMED: [(&str, ScheduleKind, usize); 6] = [
    ("gpipe", ScheduleKind::GPipe, 1),
    ("1f1b", ScheduleKind::OneFOneB, 1),
    ("interleaved", ScheduleKind::Interleaved, 2),
    ("zero_bubble", ScheduleKind::ZeroBubbleH1, 1),
    ("zb_v", ScheduleKind::ZeroBubbleV, 2),
    ("dualpipev", ScheduleKind::DualPipeV, 2),
];

/// Schedules without a name here: GPipe and ZB-H1 with several stages per rank.
const OTHERS: [&str; 2] = ["looped_bfs", "interleaved_zero_bubble"];

const RANKS: [usize; 2] = [2, 4];
const MICRO_BATCHES: usize = 8;

/// Path of `NAME_RxM.csv`, or of `NAME_RxM_lowered.csv`.
fn path(name: &str, ranks: usize, suffix: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/pytorch_schedules");
    PathBuf::from(folder).join(format!("{name}_{ranks}x{MICRO_BATCHES}{suffix}.csv"))
}

fn text(name: &str, ranks: usize, suffix: &str) -> String {
    let path = path(name, ranks, suffix);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn read(name: &str, ranks: usize, suffix: &str) -> Schedule {
    csv::read(&text(name, ranks, suffix)).unwrap_or_else(|error| panic!("{name}{suffix}: {error}"))
}

/// Calls `check` with the name, the number of ranks and the suffix of each file.
fn for_each_file(mut check: impl FnMut(&str, usize, &str)) {
    let names = NAMED.iter().map(|(name, ..)| *name).chain(OTHERS);
    for name in names {
        for ranks in RANKS {
            for suffix in ["", "_lowered"] {
                check(name, ranks, suffix);
            }
        }
    }
}

/// The findings of the verifier, a line each.
fn refusal(schedule: &Schedule) -> String {
    let findings = verify(schedule).expect_err("a broken schedule");
    findings.iter().map(|finding| format!("{finding}\n")).collect()
}

/// The sent messages of each directed pair of ranks, in order.
fn sends(schedule: &Schedule) -> BTreeMap<(usize, usize), Vec<Message>> {
    let mut sends: BTreeMap<_, Vec<Message>> = BTreeMap::new();
    for action in schedule.ranks.iter().flatten() {
        if let Action::Send(message) = action {
            sends.entry(schedule.message_ranks(*message)).or_default().push(*message);
        }
    }
    sends
}

#[test]
fn generators_make_the_order_of_pytorch() {
    for (name, kind, chunks) in NAMED {
        for ranks in RANKS {
            let own = kind.generate(ranks, chunks, MICRO_BATCHES).unwrap();
            let found = read(name, ranks, "");
            assert_eq!(found, Schedule { kind: None, ..own }, "{name} on {ranks} ranks");
            let named = Schedule { kind: Some(kind), ..found };
            verify(&named).unwrap_or_else(|findings| panic!("{name}: {findings:?}"));
        }
    }
}

/// Lowering adds messages in the same order on each pair of ranks. Its gathers of parameters, which have no effect
/// here, and the places of its receives differ.
#[test]
fn lowered_files_send_what_generators_send() {
    for (name, kind, chunks) in NAMED {
        for ranks in RANKS {
            let own = kind.generate(ranks, chunks, MICRO_BATCHES).unwrap();
            let lowered = read(name, ranks, "_lowered");
            assert!(lowered.is_lowered() && lowered.placement == own.placement, "{name}");
            for (own, lowered) in own.ranks.iter().zip(&lowered.ranks) {
                let computes = |actions: &[Action]| -> Vec<_> {
                    actions.iter().flat_map(|action| action.computes().to_vec()).collect()
                };
                assert_eq!(computes(own), computes(lowered), "{name} on {ranks} ranks");
            }
            let verified = verify(&own).unwrap();
            assert_eq!(sends(&lowered), sends(verified.lowered()), "{name} on {ranks} ranks");
            assert_eq!(peaks(&lowered), verified.peaks(), "{name} on {ranks} ranks");
        }
    }
}

#[test]
fn every_file_passes_the_verifier_and_the_program() {
    for_each_file(|name, ranks, suffix| {
        let schedule = read(name, ranks, suffix);
        let shape = (schedule.ranks.len(), schedule.micro_batches, schedule.is_lowered());
        assert_eq!(shape, (ranks, MICRO_BATCHES, !suffix.is_empty()), "{name}{suffix}");
        let place = format!("{name}{suffix} of {ranks} ranks");
        verify(&schedule).unwrap_or_else(|findings| panic!("{place}: {findings:?}"));
        // PyTorch ends its lines as the standard of CSV files wants it.
        let lines = text(name, ranks, suffix).replace('\n', "\r\n");
        assert_eq!(csv::read(&lines).unwrap(), schedule, "{place}");
        let (code, stdout) = check(&path(name, ranks, suffix));
        let stages = schedule.stages();
        let title = format!("schedule: {ranks} ranks, {stages} stages, 8 micro-batches; makespan ");
        assert!(code == 0 && stdout.starts_with(&title), "{place}: {stdout}");
    });
}

/// Runs `meshwright schedule --check`, and returns its code and its output.
fn check(path: &std::path::Path) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    let output = command.args(["schedule", "--check"]).arg(path).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

/// On each rank of each file, the first backward pass is moved before its forward pass, dropped, doubled and
/// misspelled.
#[test]
fn mutated_files_are_refused_with_rank_and_action() {
    for_each_file(|name, ranks, suffix| {
        let original = read(name, ranks, suffix);
        for rank in 0..ranks {
            let actions = &original.ranks[rank];
            let is_backward = |action: &&Action| match action.computes() {
                [compute] => compute.work.gives_input_gradient(),
                _ => false,
            };
            let backward = *actions.iter().find(is_backward).expect("each rank has one alone");
            let forward = backward.to_string().replace(['B', 'I'], "F").parse::<Action>().unwrap();
            let [at_forward, at_backward] = [forward, backward].map(|wanted| {
                actions.iter().position(|action| *action == wanted).expect("the rank has it")
            });
            let mutated = |change: &dyn Fn(&mut Vec<Action>)| {
                let mut schedule = original.clone();
                change(&mut schedule.ranks[rank]);
                csv::write(&schedule)
            };
            let assert_refused = |mutated: &str, expected: &str| {
                let text = refusal(&csv::read(mutated).unwrap());
                assert!(text.contains(expected), "{name}{suffix}: no `{expected}` in:\n{text}");
            };
            assert_refused(
                &mutated(&|actions| actions.swap(at_forward, at_backward)),
                &format!(
                    "rank {rank}, action {at_forward}, `{backward}`: comes before `{forward}`"
                ),
            );
            assert_refused(
                &mutated(&|actions| {
                    actions.remove(at_backward);
                }),
                &format!("rank {rank}: `{backward}` is missing"),
            );
            assert_refused(
                &mutated(&|actions| actions.insert(at_backward, backward)),
                &format!(
                    "rank {rank}, action {}, `{backward}`: action {at_backward} is the same",
                    at_backward + 1
                ),
            );
            let misspelled = csv::write(&original).replacen(&backward.to_string(), "0Q0", 1);
            let error = csv::read(&misspelled).unwrap_err().to_string();
            let expected = format!("rank {rank}, action {at_backward}: `0Q0` is not an action");
            assert!(error.starts_with(&expected), "{name}{suffix}: {error}");
        }
    });
}

/// A receive that is not posted, and sends in another order than their receives.
#[test]
fn mutated_messages_are_refused_with_rank_and_action() {
    for (name, ..) in NAMED {
        for ranks in RANKS {
            let original = read(name, ranks, "_lowered");
            for rank in 0..ranks {
                let actions = &original.ranks[rank];
                let is_recv = |action: &Action| matches!(action, Action::Recv(_));
                let at_recv = actions.iter().position(is_recv).expect("each rank receives");
                let mut mutated = original.clone();
                let recv = mutated.ranks[rank].remove(at_recv);
                let text = refusal(&mutated);
                let expected = format!("`{recv}` is not posted before it");
                let finding = text.lines().find(|line| line.ends_with(&expected));
                let place = format!("rank {rank}, action ");
                assert!(finding.is_some_and(|line| line.starts_with(&place)), "{name}: {text}");
            }
            let at_sends: Vec<usize> = (0..original.ranks[0].len())
                .filter(|at| matches!(original.ranks[0][*at], Action::Send(_)))
                .collect();
            let [first, second] = at_sends[..2] else { unreachable!() };
            let mut mutated = original.clone();
            let moved = mutated.ranks[0].remove(first);
            mutated.ranks[0].insert(second, moved);
            let text = refusal(&mutated);
            let expected = format!(
                "`: rank 0 sends `{}` next (its action {})",
                mutated.ranks[0][second - 1],
                second - 1
            );
            assert!(text.starts_with("rank 1, action ") && text.contains(&expected), "{text}");
        }
    }
}

/// `Schedule1F1B._get_pipeline_order` of PyTorch 2.15 begins with micro-batch 1 on the last rank, and ends with one
/// that the step does not have.
#[test]
fn the_published_order_of_1f1b_is_refused() {
    let findings = refusal(&read("1f1b_published", 2, ""));
    for expected in ["rank 1: `1F0` is missing", "rank 0: `0F8` is missing"] {
        assert!(findings.contains(expected), "{findings}");
    }
    let (code, stdout) = check(&path("1f1b_published", 2, ""));
    assert!(code == 1 && stdout.contains("REFUSED rank 1: `1F0` is missing\n"), "{stdout}");
}

//! Pipelines from the command line: schedules by name and from files, stages, metrics, warnings.

use crate::{SMALL, Workspace, assert_contains, numbers};

/// Four layers, so that each of two ranks can have two stages.
const DEEP: &str = "--layers 4 --batch 8 --steps 3 --sample-tokens 8 --clip 0 --metrics m.jsonl";

#[test]
fn every_schedule_trains_as_one_rank() {
    let workspace = Workspace::new();
    let run = |flags: &str| {
        let small = SMALL.replace("--layers 2", "").replace("--batch 4", "");
        let line = format!("{} {DEEP} {flags}", small.replace("--sample-tokens 0", ""));
        let finished = workspace.run(&line);
        assert_eq!(finished.code, Some(0), "{flags}\n{}", finished.stderr);
        (finished, workspace.metrics("m.jsonl"))
    };
    let (one, expected) = run("--mesh 1 --micro-batches 4");
    let continuation = |text: &str| text.split("--- continuation ---").nth(1).map(str::to_owned);
    let written = "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n";
    workspace.write("own.csv", written.as_bytes());
    for schedule in
        ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipev", "own.csv --stages 1,3"]
    {
        let flags = format!("--mesh pp=2 --micro-batches 4 --schedule {schedule}");
        let (finished, steps) = run(&flags);
        assert_eq!(numbers(&steps, "loss"), numbers(&expected, "loss"), "{schedule}");
        assert_eq!(continuation(&finished.stdout), continuation(&one.stdout), "{schedule}");
        let bubbles = numbers(&steps, "bubble");
        assert!(
            bubbles.iter().all(|bubble| (0.0..1.0).contains(bubble)),
            "{schedule}: {bubbles:?}"
        );
        let name = schedule.split(' ').next().unwrap();
        assert_contains(&finished.stderr, &format!("pipeline {name}: "));
    }
}

#[test]
fn schedules_without_effect_give_a_warning() {
    let workspace = Workspace::new();
    let run = |flags: &str| {
        let finished = workspace.run(&format!("{SMALL} --steps 1 --micro-batches 2 {flags}"));
        assert_eq!(finished.code, Some(0), "{flags}\n{}", finished.stderr);
        finished.stderr
    };
    let warning = "warning: --schedule zb-h1: weight gradients are not deferred ";
    let zb_h1 = |flags: &str| run(&format!("--schedule zb-h1 {flags}"));
    assert!(!zb_h1("--mesh pp=2").contains("warning"));
    assert!(!run("--mesh pp=2 --recompute full").contains("warning"));
    assert_contains(
        &zb_h1("--mesh pp=2 --recompute full"),
        &format!("{warning}of recomputed layers; use --recompute none, or --schedule 1f1b"),
    );
    assert_contains(
        &zb_h1("--mesh pp=2,fsdp=2 --zero 2"),
        &format!("{warning}at ZeRO stages 2 and 3; use --zero 1, or --schedule 1f1b"),
    );
    workspace.write("gathers.csv", b"0UNSHARD,0F0,0F1,0B0,0B1,0RESHARD\n1F0,1B0,1F1,1B1\n");
    let warned = run("--mesh pp=2 --schedule gathers.csv");
    assert_contains(&warned, "warning: --schedule gathers.csv: UNSHARD and RESHARD have no effect");
}

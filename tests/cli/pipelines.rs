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

/// Embedding and head are stages of their own: in evaluations, samples, checkpoints and their continuation, too.
#[test]
fn ends_are_stages_without_layers() {
    let workspace = Workspace::new();
    let small = SMALL.replace("--sample-tokens 0", "--sample-tokens 8 --clip 0");
    let run = |flags: &str| {
        let data = "--eval-data text.txt --eval-every 1 --eval-steps 1 --metrics m.jsonl";
        let finished = workspace.run(&format!("{small} --micro-batches 4 {data} {flags}"));
        assert_eq!(finished.code, Some(0), "{flags}\n{}", finished.stderr);
        let continuation = finished.stdout.split("--- continuation ---").nth(1).map(str::to_owned);
        (numbers(&workspace.metrics("m.jsonl"), "loss"), continuation.unwrap(), finished.stderr)
    };
    let (expected, continuation, _) = run("--mesh 1 --steps 4");
    let (losses, _, stderr) = run("--mesh pp=4 --steps 2 --save out");
    assert_contains(&stderr, "pipeline 1f1b: 4 stages of 0,1,1,0 layers");
    assert_eq!(losses, expected[..2]);
    let flags = "--mesh pp=2 --schedule zb-v --stages 0,1,1,0 --steps 4 --resume out/latest";
    let (losses, sampled, _) = run(flags);
    assert_eq!((losses, sampled), (expected, continuation));
    // Times of the ends are part of the times of the layers beside them.
    run("--mesh pp=4 --steps 2 --stage-times times.json");
    let times = String::from_utf8(workspace.read("times.json")).unwrap();
    assert_eq!(times.matches("blocks.").count(), 2, "{times}");
    let (_, _, stderr) = run("--mesh pp=4 --steps 1 --stages times.json");
    assert_contains(&stderr, "4 stages of 0,1,1,0 layers");
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

/// `--stages` reads the measured times of layers, on one rank and on stages.
#[test]
fn stage_times_are_measured_and_read() {
    let workspace = Workspace::new();
    let run = |flags: &str| {
        let small = SMALL.replace("--layers 2", "").replace("--batch 4", "");
        let small = small.replace("--sample-tokens 0", "");
        let finished = workspace.run(&format!("{small} {DEEP} {flags}"));
        assert_eq!(finished.code, Some(0), "{flags}\n{}", finished.stderr);
        (finished.stderr, workspace.metrics("m.jsonl"))
    };
    let (_, expected) = run("--mesh 1 --micro-batches 4");
    for (mesh, times) in [
        ("1", "one.json"),
        ("pp=2", "two.json"),
        ("pp=2 --schedule zb-v", "v.json"),
        ("pp=2 --stages two.json", "again.json"),
    ] {
        let (shown, steps) = run(&format!("--micro-batches 4 --mesh {mesh} --stage-times {times}"));
        assert_eq!(numbers(&steps, "loss"), numbers(&expected, "loss"), "{mesh}");
        assert_eq!(steps[0].get("bubble").is_some_and(|bubble| !bubble.is_null()), mesh != "1");
        assert_eq!(shown.contains("pipeline "), mesh != "1", "{shown}");
        let text = std::fs::read_to_string(workspace.path(times)).unwrap();
        let read: std::collections::BTreeMap<String, f64> = serde_json::from_str(&text).unwrap();
        let names: Vec<&str> = read.keys().map(String::as_str).collect();
        assert_eq!(names, ["blocks.0", "blocks.1", "blocks.2", "blocks.3"]);
        assert!(read.values().all(|ms| *ms > 0.0), "{text}");
        let (_, steps) = run(&format!("--micro-batches 4 --mesh pp=2 --stages {times}"));
        assert_eq!(numbers(&steps, "loss"), numbers(&expected, "loss"), "{times}");
    }
    // Earlier times are kept, perhaps written by hand.
    let earlier = workspace.read("again.json");
    let (shown, _) = run("--micro-batches 4 --mesh pp=2 --stage-times again.json");
    assert_contains(&shown, "--stage-times: the earlier times are now in ");
    assert_eq!(workspace.read("again.json.1"), earlier);
    // The layers that take longest are on stages of their own.
    let slow = r#"{"blocks.0": 9, "blocks.1": 1, "blocks.2": 1, "blocks.3": 1}"#;
    workspace.write("slow.json", slow.as_bytes());
    let (shown, _) = run("--micro-batches 4 --mesh pp=2 --stages slow.json");
    assert_contains(&shown, "2 stages of 1,3 layers");
}

#[test]
fn stage_times_need_another_file() {
    let workspace = Workspace::new();
    let refusal = |flags: &str| {
        let finished = workspace.run(&format!("{SMALL} --steps 1 {flags}"));
        assert_eq!(finished.code, Some(2), "{flags}");
        finished.stderr
    };
    assert_contains(
        &refusal("--stage-times times.txt"),
        "--stage-times: `times.txt` is not a .json file: --stages reads only files with that extension",
    );
    assert_contains(
        &refusal("--trace t.json --stage-times t.json"),
        "--stage-times: is also the file of --trace; name another file to write to",
    );
    assert_contains(
        &refusal("--stage-times none/t.json"),
        "--stage-times: cannot write none/t.json",
    );
}

//! `--batch auto`, `--micro-batches auto`, and the noise scale that advises on the batch.

use serde_json::Value;

use crate::{Finished, SMALL, Workspace, assert_contains, numbers};

/// Runs a line that has a batch of its own.
fn run(workspace: &Workspace, line: &str) -> Finished {
    workspace.run(&format!("{} {line}", SMALL.replace("--batch 4 ", "")))
}

fn train(workspace: &Workspace, line: &str) -> Finished {
    let run = run(workspace, line);
    assert_eq!(run.code, Some(0), "{line}\n{}", run.stderr);
    run
}

/// Returns the sequences of a step.
fn batch_of(steps: &[Value]) -> u64 {
    steps[0]["tokens"].as_u64().unwrap() / 16
}

/// The most sequences that fit are chosen: a run with them fits, they are kept, and one unit more does not fit.
#[test]
fn the_batch_fills_the_memory() {
    let workspace = Workspace::new();
    let line = "--mesh dp=2 --metrics m.jsonl --save out";
    let limit = "--batch auto --memory-limit 2MB";
    let first = train(&workspace, &format!("{line} --steps 2 {limit}"));
    assert_contains(&first.stderr, "--batch auto: ");
    assert_contains(&first.stderr, "the most that fit in 80 % of --memory-limit 2.00 MB");
    let batch = batch_of(&workspace.metrics("m.jsonl"));
    assert!(batch > 4 && batch.is_multiple_of(2), "{batch}");
    // It is kept, also if the flag is repeated with another limit.
    for again in ["", "--batch auto --memory-limit 3MB"] {
        train(&workspace, &format!("{line} --steps 3 --resume auto {again}"));
        assert_eq!(batch_of(&workspace.metrics("m.jsonl")[2..]), batch);
    }
    let fits = |batch: u64| {
        let limit = 2_000_000 * 8 / 10;
        let line = format!("--mesh dp=2 --steps 1 --batch {batch} --memory-limit {limit}");
        run(&workspace, &line).code == Some(0)
    };
    assert!(fits(batch) && !fits(batch + 2), "{batch}");
}

#[test]
fn the_fewest_micro_batches_are_chosen() {
    let workspace = Workspace::new();
    let line = "--mesh fsdp=2 --batch 64 --steps 1 --micro-batches auto";
    let all = train(&workspace, &format!("{line} --memory-limit 1GB"));
    assert_contains(&all.stderr, "--micro-batches auto: 1, the fewest that fit, of 32 sequences");
    let few = train(&workspace, &format!("{line} --memory-limit 1500kB"));
    let (_, text) = few.stderr.split_once("--micro-batches auto: ").unwrap();
    let count: usize = text.split(',').next().unwrap().parse().unwrap();
    assert!(count > 1 && 32 % count == 0, "{text}");
}

#[test]
fn sizes_that_cannot_be_chosen_are_refused() {
    let workspace = Workspace::new();
    for (line, message) in [
        (
            "--mesh dp=2 --batch auto",
            "--batch auto: the memory to fill is not known; add --memory-limit BYTES",
        ),
        ("--mesh 1 --micro-batches auto", "--micro-batches auto: the memory to fill is not known"),
        ("--mesh auto=2 --batch auto --memory-limit 1GB", "--batch: `auto` is of a run on a mesh"),
        ("--simulate h100x8 --batch auto", "--batch: `auto` is of a run on a mesh"),
        ("--plan h100x8 --batch auto", "--batch: `auto` is of a run on a mesh, and --plan chooses"),
        (
            "--plan h100x8 --micro-batches auto",
            "--micro-batches: --plan chooses them; leave it out",
        ),
        ("--mesh dp=2 --preflight --batch auto", "--batch: `auto` is not compared by --preflight"),
        (
            "--mesh dp=2 --batch auto --memory-limit 1kB",
            "--batch auto: no size fits in 80 % of --memory-limit 1.00 kB: use --memory-limit ",
        ),
        (
            "--mesh dp=3 --micro-batches auto --memory-limit 1kB",
            "error: --batch 4 does not divide into 3 equal parts (dp=3 of --mesh); use a multiple of 3",
        ),
        (
            "--mesh dp=2 --batch automatic",
            "--batch: must be a whole number of at least 1, not `automatic`",
        ),
        ("--mesh dp=2 --noise-scale", "--noise-scale: is written to the metrics; add --metrics"),
        ("--mesh tp=2 --noise-scale --metrics m.jsonl", "--noise-scale: compares parts of a batch"),
        (
            "--mesh 1 --noise-scale --metrics m.jsonl --micro-batches auto --memory-limit 1GB",
            "--noise-scale: compares parts of a batch",
        ),
        (
            "--plan h100x8 --noise-scale --metrics m.jsonl",
            "--noise-scale: --plan runs nothing; leave one of them out",
        ),
        (
            "--mesh pp=2,dp=2 --noise-scale --metrics m.jsonl",
            "--noise-scale: ranks along pp have no gradient",
        ),
        (
            "--mesh cp=2 --micro-batches 2 --noise-scale --metrics m.jsonl",
            "--noise-scale: ranks along cp",
        ),
    ] {
        let words =
            SMALL.replace("--batch 4", if line.contains("--batch") { "" } else { "--batch 4" });
        let run = workspace.run(&format!("{words} --steps 2 {line}"));
        assert_eq!(run.code, Some(2), "{line}\n{}", run.stderr);
        assert_contains(&run.stderr, message);
    }
}

/// The limit that a refusal names suffices, and the same one is named for all that do not.
#[test]
fn a_limit_that_suffices_is_named() {
    let workspace = Workspace::new();
    for line in ["--mesh dp=2 --batch auto", "--mesh fsdp=2 --batch 64 --micro-batches auto"] {
        let line = format!("{line} --steps 1 --memory-limit");
        let limit = |given: &str| {
            let refused = run(&workspace, &format!("{line} {given}"));
            let (_, text) = refused.error().split_once(": use --memory-limit ").unwrap();
            text.split(',').next().unwrap().to_owned()
        };
        let enough = limit("1kB");
        assert_eq!(limit("400kB"), enough, "{line}");
        train(&workspace, &format!("{line} {enough}"));
    }
}

#[test]
fn the_batch_is_no_larger_than_the_data() {
    let workspace = Workspace::new();
    workspace.write("text.txt", &[b'a'; 401]);
    let line = "--mesh dp=2 --batch auto --memory-limit 20MB --steps 1 --metrics m.jsonl";
    let run = train(&workspace, line);
    assert_contains(&run.stderr, "--batch auto: 24 sequences, as the data have only 25\n");
    assert_eq!(batch_of(&workspace.metrics("m.jsonl")), 24);
}

/// The number of parts is checked after it is chosen.
#[test]
fn the_noise_scale_takes_chosen_micro_batches() {
    let workspace = Workspace::new();
    let line = "--mesh 1 --batch 64 --steps 1 --noise-scale --metrics m.jsonl --micro-batches auto";
    let chosen = train(&workspace, &format!("{line} --memory-limit 2MB"));
    assert_contains(&chosen.stderr, "--micro-batches auto: ");
}

/// A file has the word as text.
#[test]
fn files_may_leave_the_batch_open() {
    let workspace = Workspace::new();
    workspace.write(
        "run.toml",
        b"batch = \"auto\"\nmemory-limit = \"2MB\"\nmesh = \"dp=2\"\nsteps = 1\n",
    );
    let run = train(&workspace, "--config run.toml");
    assert_contains(&run.stderr, "--batch auto: ");
}

/// Meshes with the same parts of a batch measure the same, also of gradients that are partial over `tp`.
#[test]
fn the_noise_scale_does_not_depend_on_how_parts_are_computed() {
    let workspace = Workspace::new();
    let measure = |line: &str| {
        let line =
            format!("--batch 8 --steps 3 --micro-batches 2 --noise-scale --metrics m.jsonl {line}");
        train(&workspace, &line);
        numbers(&workspace.metrics("m.jsonl"), "noise_scale")
    };
    let expected = measure("--mesh dp=2");
    assert!(expected.iter().all(|scale| *scale > 0.0), "{expected:?}");
    for line in ["--mesh fsdp=2 --zero 1", "--mesh fsdp=2 --zero 3", "--mesh fsdp=2,tp=2 --zero 2"]
    {
        for (found, expected) in measure(line).into_iter().zip(&expected) {
            assert!((found / expected - 1.0).abs() < 0.01, "{line}: {found}, not {expected}");
        }
    }
}

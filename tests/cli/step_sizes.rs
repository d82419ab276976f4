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
            "--batch auto: no size fits: --memory-limit: 1.00 kB is too low",
        ),
        (
            "--mesh dp=3 --micro-batches auto --memory-limit 1GB",
            "--micro-batches auto: no size fits: --batch 4",
        ),
        (
            "--mesh dp=2 --batch automatic",
            "--batch: must be a whole number of at least 1, not `automatic`",
        ),
        ("--mesh dp=2 --noise-scale", "--noise-scale: is written to the metrics; add --metrics"),
        ("--mesh tp=2 --noise-scale --metrics m.jsonl", "--noise-scale: compares parts of a batch"),
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

//! The search of a mesh on a described cluster: `--plan`.

use crate::{Workspace, assert_contains};

/// A Llama of 50 million parameters.
const MODEL: &str = "--hidden 512 --layers 8 --heads 8 --seq 1024 --batch 32";

/// The flags of the plan can be typed, and give the step that the plan prints.
#[test]
fn a_plan_can_be_pasted() {
    let workspace = Workspace::new();
    let before = workspace.listing();
    let plan = workspace.run(&format!("--plan h100x8 {MODEL} --fix pp=1 --tokens 1B"));
    assert_eq!(plan.code, Some(0), "{}", plan.stderr);
    for part in ["MFU", "GPU-hours", "\nbinds ", "\nalso ", "left out: ", "\nrules "] {
        assert_contains(&plan.stdout, part);
    }
    let line = |start: &str| plan.stdout.lines().find_map(|line| line.trim().strip_prefix(start));
    let flags = line("use").unwrap().trim();
    let again = workspace.run(&format!("--simulate h100x8 {MODEL} {flags} --tokens 1B"));
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    let step = line("step").unwrap();
    assert_contains(&again.stdout, step);
    assert_eq!(workspace.listing(), before, "a plan writes nothing");
}

#[test]
fn wrong_requests_are_refused() {
    let workspace = Workspace::new();
    for (line, expected) in [
        ("--plan h10x8", "unknown cluster `h10`; did you mean `h100`?"),
        ("--plan h100x0", "a run needs at least 1 GPU"),
        ("--plan h100x17", "use 16 or 24"),
        ("--plan h100x1000000000", "at most 10000000 GPUs"),
        ("--plan h100x8 --mesh dp=8", "--fix tp=8"),
        ("--plan h100x8 --simulate h100x8", "leave one of them out"),
        ("--plan h100x8 --resume there", "--plan plans new runs"),
        ("--plan h100x8 --fix tp=8,tp=4", "given twice"),
        ("--plan h100x8 --fix dp=8 --batch 7", "use a multiple of 8"),
        ("--fix tp=2 --mesh tp=2", "needs --plan CLUSTERxN"),
    ] {
        let refused = workspace.run(line);
        assert_eq!(refused.code, Some(2), "{line}: {}", refused.stdout);
        assert_contains(&refused.stderr, expected);
    }
}

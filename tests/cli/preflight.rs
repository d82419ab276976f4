//! `--preflight`: the comparison with one rank.

use super::{SMALL, Workspace, assert_contains};

/// The flags of a small run that also applies to a preflight.
fn flags() -> String {
    SMALL.replace("--sample-tokens 0", "")
}

#[test]
fn a_run_is_compared_with_one_rank_and_writes_nothing() {
    let workspace = Workspace::new();
    let before = workspace.listing();
    let run = workspace.run(&format!("{} --mesh dp=2,tp=2 --preflight", flags()));
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let start = "dp=2,tp=2 equals one rank in 3 steps: losses within ";
    assert!(run.stdout.starts_with(start) && run.stdout.lines().count() == 1, "{}", run.stdout);
    assert_eq!(workspace.listing(), before);
    workspace.write("run.toml", b"preflight = 1\nmesh = \"tp=2\"\n");
    let run = workspace.run(&format!("{} --config run.toml", flags()));
    assert_contains(&run.stdout, "tp=2 equals one rank in 1 step: ");
}

#[test]
fn what_a_preflight_does_not_do_is_refused() {
    let workspace = Workspace::new();
    let run = workspace.run(&format!("{} --mesh dp=2 --preflight --save a --trace b", flags()));
    assert_contains(run.error(), "--save: a --preflight compares steps from the beginning");
    assert_contains(run.error(), "--trace: a --preflight compares");
    let run = workspace.run(&format!("{} --mesh 1 --preflight", flags()));
    assert_contains(run.error(), "--preflight: the mesh has one rank");
    let run = workspace.run(&format!("{} --mesh auto=2 --preflight", flags()));
    assert_contains(run.error(), "`auto=2` is not compared by --preflight");
}

/// The sizes of a model that one rank cannot hold are refused with a fix.
#[test]
fn a_model_that_one_rank_cannot_hold_is_refused() {
    let workspace = Workspace::new();
    let sizes = "--hidden 65536 --layers 4096 --data text.txt --seq 16 --batch 4 --threads 1";
    let run = workspace.run(&format!("{sizes} --mesh tp=4 --preflight"));
    assert_contains(run.error(), "not enough memory");
}

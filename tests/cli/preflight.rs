//! `--preflight`: the comparison with one rank.

use super::{SMALL, Workspace, assert_contains};

#[test]
fn a_run_is_compared_with_one_rank_and_writes_nothing() {
    let workspace = Workspace::new();
    let before = workspace.listing();
    let run = workspace.run(&format!("{SMALL} --mesh dp=2,tp=2 --preflight"));
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let start = "dp=2,tp=2 equals one rank in 3 steps: losses within ";
    assert!(run.stdout.starts_with(start) && run.stdout.lines().count() == 1, "{}", run.stdout);
    assert_eq!(workspace.listing(), before);
    workspace.write("run.toml", b"preflight = 1\nmesh = \"tp=2\"\n");
    let run = workspace.run(&format!("{SMALL} --config run.toml"));
    assert_contains(&run.stdout, "tp=2 equals one rank in 1 step: ");
}

#[test]
fn what_a_preflight_does_not_do_is_refused() {
    let workspace = Workspace::new();
    let run = workspace.run(&format!("{SMALL} --mesh dp=2 --preflight --save a --trace b"));
    assert_contains(run.error(), "--save: a --preflight compares steps from the beginning");
    assert_contains(run.error(), "--trace: a --preflight compares");
    for (flags, count) in [
        ("--save-every 2 --keep 1 --max-failed-saves 1 --stop-after 1m --sample-tokens 9", 5),
        ("--resume out --sample-tokens 0", 1),
        ("--resume auto --save-async", 2),
    ] {
        let line =
            format!("{} --mesh dp=2 --preflight {flags}", SMALL.replace("--sample-tokens 0", ""));
        let run = workspace.run(&line);
        let text = run.error();
        assert_eq!(text.matches("leave it out").count(), count, "{text}");
        assert!(
            !text.contains("needs --save") && (count > 1 || !text.contains("problems")),
            "{text}"
        );
    }
    let run = workspace.run(&format!("{SMALL} --mesh 1 --preflight"));
    assert_contains(run.error(), "--preflight: the mesh has one rank");
    let run = workspace.run(&format!("{SMALL} --mesh auto=2 --preflight"));
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

//! Saves that fail, such as on a full disk, while training goes on.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::stops::Running;
use crate::{PATIENCE, SMALL, Workspace, assert_contains, program};

/// Returns the program with a limit of the file size, in blocks of 512 bytes, that can be raised.
fn with_raisable_limit(blocks: u32) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -S -f {blocks}; exec \"$@\"");
    command.args(["-c", &script, "sh"]).arg(program().get_program());
    command
}

fn small() -> String {
    SMALL.replace("--hidden 32", "--hidden 64")
}

/// Saves fail until the disk has space again; no step is lost.
#[test]
fn training_goes_on_without_the_save() {
    for kind in ["--mesh dp=2,tp=2", "--mesh dp=2 --save-async", "--mesh pp=2 --micro-batches 2"] {
        let workspace = Workspace::new();
        let line = format!("{} {kind} --save out --save-every 5 --metrics m.jsonl", small());
        let stop = "--steps 1000000 --max-failed-saves 100000";
        let mut run =
            Running::with(&workspace, with_raisable_limit(400), &format!("{line} {stop}"));
        let start = Instant::now();
        let metrics =
            || String::from_utf8(std::fs::read(workspace.path("m.jsonl")).unwrap_or_default());
        while metrics().unwrap().matches("save_failed").count() < 2 {
            assert!(start.elapsed() < PATIENCE, "{kind}: no save fails");
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(!workspace.path("out/latest").exists());
        run.set_file_limit("unlimited");
        while !workspace.path("out/latest").exists() {
            assert!(start.elapsed() < PATIENCE, "{kind}: no save succeeds");
            std::thread::sleep(Duration::from_millis(2));
        }
        run.signal("TERM");
        let stopped = run.finish();
        assert_eq!(stopped.code, Some(75), "{kind}\n{}", stopped.stderr);
        for part in [
            "warning: --save: cannot write out/.tmp-step-00000005/rank-0000",
            "File too large (os error 27); the state after step 5 is not saved, and there is no checkpoint before it; \
             training goes on (failed saves in a row: 1; --max-failed-saves 100000 end the run)\n",
            "(failed saves in a row: 2; ",
        ] {
            assert_contains(&stopped.stderr, part);
        }
        let steps = workspace.metrics("m.jsonl");
        let failed: Vec<u64> =
            steps.iter().filter_map(|step| step["save_failed"].as_u64()).collect();
        assert_eq!(failed[..2], [5, 10], "{kind}");
        assert_eq!(stopped.stderr.matches("warning: --save: ").count(), failed.len(), "{kind}");
        let left = workspace.folder_entries();
        assert!(left.iter().all(|name| !name.starts_with("out/.")), "{kind}: {left:?}");

        let steps = steps.len() + 2;
        let line =
            format!("{line} --steps {steps}").replace("--save-every 5", "--save-every 100000");
        let resumed = workspace.run(&format!("{line} --resume out"));
        assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
        let whole = workspace.run(&line.replace("--save out", "--save whole"));
        assert_eq!(whole.code, Some(0), "{}", whole.stderr);
        let [resumed, whole] =
            ["out", "whole"].map(|dir| workspace.tensors(&format!("{dir}/step-{steps:08}")));
        assert!(resumed == whole, "{kind}");
    }
}

#[test]
fn several_failed_saves_in_a_row_end_the_run() {
    for (kind, steps) in [("--mesh dp=2", [2, 4]), ("--mesh fsdp=2 --save-async", [2, 4])] {
        let workspace = Workspace::new();
        let line = format!("{} {kind} --save out --save-every 2 --steps 100000", small());
        let command = with_raisable_limit(400);
        let finished = workspace.run_program(command, &format!("{line} --max-failed-saves 2"));
        let [warned, ended] =
            steps.map(|step| format!("--save: cannot write out/.tmp-step-{step:08}/rank-0000"));
        assert_contains(finished.error(), &format!("error: {ended}"));
        assert_contains(
            finished.error(),
            "; saves have failed 2 times in a row, and there is no checkpoint before it",
        );
        assert_contains(&finished.stderr, &format!("warning: {warned}"));
        assert_eq!(finished.stderr.matches("warning: --save").count(), 1, "{}", finished.stderr);
        assert_eq!(workspace.folder_entries(), Vec::<String>::new());
    }
}

/// The folder is not made again, as it may be missing because nothing is mounted there any more.
#[test]
fn a_folder_that_disappears_ends_the_run_as_a_failure() {
    let workspace = Workspace::new();
    let line = format!("{} --mesh dp=2 --save out --save-every 2 --steps 10000000", small());
    let mut running = Running::start(&workspace, &format!("{line} --metrics m.jsonl"));
    running.wait_for_steps(3);
    std::fs::rename(workspace.path("out"), workspace.path("moved")).unwrap();
    let finished = running.finish();
    assert_eq!(finished.code, Some(3), "{}", finished.stderr);
    for kind in ["warning", "error"] {
        assert_contains(&finished.stderr, &format!("{kind}: --save: cannot create out/.tmp-step-"));
    }
    assert_contains(
        &finished.stderr,
        ": its folder was there when the run began, and is missing now; move it back, or mount its file system",
    );
    assert_contains(
        &finished.stderr,
        "; saves have failed 3 times in a row, and the last checkpoint is that of step ",
    );
    let entries = std::fs::read_dir(workspace.path("out")).into_iter().flatten();
    let mut names = entries.map(|entry| entry.unwrap().file_name());
    assert!(names.all(|name| name == "flight"));
}

/// The state after the last step would be lost.
#[test]
fn the_last_save_must_succeed() {
    let workspace = Workspace::new();
    let line = format!("{} --mesh dp=2 --save out --save-every 2 --steps 4", small());
    let finished = workspace.run_program(with_raisable_limit(400), &line);
    assert_contains(
        finished.error(),
        "error: --save: cannot write out/.tmp-step-00000004/rank-0000",
    );
    assert_eq!(finished.stderr.matches("warning: --save").count(), 1, "{}", finished.stderr);
}

#[test]
fn the_number_of_failed_saves_is_checked() {
    let workspace = Workspace::new();
    let refused = workspace.run(&format!("{SMALL} --save out --max-failed-saves 0"));
    assert_eq!(
        refused.error(),
        "error: --max-failed-saves: must be a whole number of at least 1, not `0`"
    );
    let refused = workspace.run(&format!("{SMALL} --max-failed-saves 2"));
    assert_eq!(refused.error(), "error: --max-failed-saves: needs --save DIR");
}

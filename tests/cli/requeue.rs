//! `--resume auto`: one command begins, continues and ends a run.

use std::time::Duration;

use crate::stops::Running;
use crate::{SMALL, Workspace, assert_contains, numbers};

const COMMAND: &str =
    "--mesh dp=2 --save out --save-every 4 --keep 2 --resume auto --metrics m.jsonl";

#[test]
fn one_command_begins_continues_and_ends() {
    let workspace = Workspace::new();
    let steps = 400;
    let line = format!("{SMALL} {COMMAND} --steps {steps}");
    let mut seen = 0;
    // A stop, a kill, a stop.
    for (signal, code) in [("TERM", Some(75)), ("KILL", None), ("USR1", Some(75))] {
        let mut run = Running::start(&workspace, &line);
        run.wait_for_steps(seen + 6);
        run.signal(signal);
        let stopped = run.finish();
        assert_eq!(stopped.code, code, "{signal}\n{}", stopped.stderr);
        seen = workspace.metrics("m.jsonl").len();
    }
    workspace.train(&format!("{COMMAND} --steps {steps}"));
    let losses = numbers(&workspace.metrics("m.jsonl"), "loss");
    let checkpoint = format!("out/step-{steps:08}");
    let tensors = workspace.tensors(&checkpoint);
    let listing = workspace.listing();
    let done = workspace.train(&format!("{COMMAND} --steps {steps} --export-hf hf"));
    let report = "--resume: out/step-00000400 has 400 steps done, as many as --steps: nothing is left to train\n";
    assert_contains(&done.stderr, report);
    assert_contains(&done.stdout, "no step was left to train on ");
    assert!(workspace.path("hf/model.safetensors").is_file());
    assert_eq!(numbers(&workspace.metrics("m.jsonl"), "loss"), losses);
    std::fs::remove_dir_all(workspace.path("hf")).unwrap();
    assert_eq!(workspace.listing(), listing);
    assert!(workspace.tensors(&checkpoint) == tensors, "it is saved again");

    workspace.train(&format!("--mesh dp=2 --steps {steps} --save whole --metrics whole.jsonl"));
    assert_eq!(losses, numbers(&workspace.metrics("whole.jsonl"), "loss"));
    assert!(tensors == workspace.tensors(&format!("whole/step-{steps:08}")));
}

/// A folder with the name of another step would be resumed as if it were the newest.
#[test]
fn a_checkpoint_under_the_name_of_another_step_is_damaged() {
    let workspace = Workspace::new();
    workspace.train(&format!("{COMMAND} --steps 8"));
    let folder = |step: u64| workspace.path(&format!("out/step-{step:08}"));
    std::fs::remove_dir_all(folder(8)).unwrap();
    std::fs::rename(folder(4), folder(8)).unwrap();
    let run = workspace.run(&format!("{SMALL} {COMMAND} --steps 9"));
    assert_contains(
        run.error(),
        "out/step-00000008/manifest.json is damaged: it is that of a checkpoint of step 4, and the folder that of step \
         8; rename the folder to step-00000004",
    );
}

#[test]
fn damaged_checkpoints_are_skipped() {
    let workspace = Workspace::new();
    workspace.train(&format!("{COMMAND} --steps 8"));
    let damage =
        |step: u64| workspace.write(&format!("out/step-{step:08}/rank-00000.safetensors"), b"torn");
    damage(8);
    let resumed = workspace.train(&format!("{COMMAND} --steps 9"));
    assert_contains(&resumed.stderr, "; going on from out/step-00000004\n");
    let whole = workspace.losses("--mesh dp=2 --steps 9");
    assert_eq!(numbers(&workspace.metrics("m.jsonl"), "loss"), whole);
    // None is intact: a run from the beginning would replace what may be mended.
    for name in workspace.folder_entries() {
        if let Some(step) = name.strip_prefix("out/step-") {
            damage(step.parse().unwrap());
        }
    }
    let before = workspace.listing();
    let refused = |reason: &str| {
        let run = workspace.run(&format!("{SMALL} {COMMAND} --steps 9"));
        assert_contains(run.error(), "error: --resume auto: no usable checkpoint in out:\n  - ");
        for step in [9, 8] {
            assert_contains(run.error(), &format!("out/step-{step:08}/{reason}"));
        }
        assert_contains(run.error(), "restore their files, or move out away to begin again");
    };
    refused("rank-00000.safetensors is damaged: ");
    for name in ["rank-00000.safetensors", "manifest.xxh3", "manifest.json"] {
        for step in [8, 9] {
            std::fs::remove_file(workspace.path(&format!("out/step-{step:08}/{name}"))).unwrap();
        }
        refused(name);
    }
    assert_eq!(before.len() - workspace.listing().len(), 6);
    std::fs::rename(workspace.path("out"), workspace.path("old")).unwrap();
    workspace.train(&format!("{COMMAND} --steps 9"));
    assert_eq!(numbers(&workspace.metrics("m.jsonl"), "loss"), whole);
}

/// A fresh start would replace the checkpoints.
#[test]
fn a_folder_of_another_run_is_an_error() {
    let workspace = Workspace::new();
    workspace.train(&format!("{COMMAND} --steps 4"));
    let other = workspace
        .run(&format!("{} {COMMAND} --steps 8", SMALL.replace("--hidden 32", "--hidden 64")));
    assert_contains(other.error(), "error: --hidden: 64, but 32 was saved in out/step-00000004");
    workspace.write("text.txt", &b"other text ".repeat(200));
    let other = workspace.run(&format!("{SMALL} {COMMAND} --steps 8"));
    assert_contains(other.error(), "error: --resume: the data differ");
    std::fs::remove_dir_all(workspace.path("out")).unwrap();
    let other = workspace.run(&format!("{SMALL} --steps 8 --resume auto"));
    assert_contains(other.error(), "error: --resume: auto needs --save DIR");
}

/// A run without a checkpoint has nothing to lose in its first moments.
#[test]
fn a_stop_before_the_first_step_begins_again() {
    let workspace = Workspace::new();
    let line = format!("{SMALL} {COMMAND} --steps 30");
    for wait in [4, 8, 16] {
        let run = Running::start(&workspace, &line);
        std::thread::sleep(Duration::from_millis(wait));
        run.signal("TERM");
        let stopped = run.finish();
        // None, if the program has not begun to handle signals.
        let is_stop = matches!(stopped.code, Some(0 | 75) | None);
        assert!(is_stop, "{:?}\n{}", stopped.code, stopped.stderr);
    }
    // Nor does it leave what shows that folders can be written to.
    for wait in 0..16 {
        let run = Running::start(&workspace, &format!("{line} --export-hf hf"));
        std::thread::sleep(Duration::from_millis(wait));
        run.signal("TERM");
        run.finish();
        let left = workspace.listing().into_iter().find(|name| name.contains(".tmp-"));
        assert_eq!(left, None, "after {wait} ms");
    }
    workspace.train(&format!("{COMMAND} --steps 30"));
    let whole = workspace.losses("--mesh dp=2 --steps 30");
    assert_eq!(numbers(&workspace.metrics("m.jsonl"), "loss"), whole);
}

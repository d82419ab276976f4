//! Restarts after failures.

use meshwright::checkpoint::RunEventKind;

use super::{Folder, finish, signal};

/// A run continues from its own checkpoints, and begins again as long as it has none.
#[test]
fn restarts_continue_from_the_newest_checkpoint() {
    let plan = ["exit 3", "save 4; exit 3", "save 8; kill -9 $$", "echo done; save 9; exit 0"];
    let folder = Folder::new(&plan);
    let args = "--max-restarts 1 -- ./train --save out --resume old/step-2 --new-data --lr 1";
    let run = folder.run(args);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "done\n"), "{}", run.stderr);
    let first = "--save out --resume old/step-2 --new-data --lr 1";
    let later = "--save out --lr 1 --resume auto";
    assert_eq!(folder.args(), [first, first, later, later]);
    let events = folder.events();
    let of = |kind: RunEventKind| events.iter().filter(move |event| event.event == kind);
    let ends = of(RunEventKind::End).map(|end| (end.attempt, end.code, end.restart_in));
    let restart = |attempt| (attempt, Some(3), Some(0));
    assert_eq!(Vec::from_iter(ends), [restart(1), restart(2), restart(3), (4, Some(0), None)]);
    let text = |path: &Option<std::path::PathBuf>| {
        path.as_ref().map_or(String::new(), |path| path.display().to_string())
    };
    let from: Vec<_> = of(RunEventKind::Start).map(|start| text(&start.from)).collect();
    assert_eq!(from, ["old/step-2", "old/step-2", "out/step-00000004", "out/step-00000008"]);
    let newest: Vec<_> = of(RunEventKind::End).map(|end| text(&end.checkpoint)).collect();
    assert_eq!(newest[1..], ["out/step-00000004", "out/step-00000008", "out/step-00000009"]);
    assert_eq!(events[5].reason.as_deref(), Some("a process was ended by SIGKILL"));
}

/// The programs know which checkpoint was intact, which rank has failed, and the whole message.
#[test]
fn the_log_has_what_the_programs_report() {
    let reports = "report '{\"resumed\":\"out/step-00000004\"}'; \
                   report '{\"failed\":{\"rank\":0,\"stopped_by\":2,\"reason\":\"lost\"}}'; \
                   report '{\"failed\":{\"rank\":2,\"stopped_by\":null,\"reason\":\"a\\\\nb\"}}'; \
                   echo 'error: a' >&2; exit 3";
    let folder = Folder::new(&["save 4; save 8; exit 3", reports, "exit 0"]);
    let run = folder.run("--max-restarts 2 -- ./train --save out");
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let events = folder.events();
    let resumed = &events[3];
    assert_eq!((resumed.event, resumed.attempt), (RunEventKind::Resume, 2));
    assert_eq!(resumed.from, Some("out/step-00000004".into()));
    let end = &events[4];
    assert_eq!((end.rank, end.reason.as_deref()), (Some(2), Some("a\nb")));
    assert!(run.stderr.contains("meshwright run: a; starting again from "), "{}", run.stderr);
}

/// A checkpoint of an earlier run is none of this one, and a checkpoint of an earlier step is no progress.
#[test]
fn only_further_steps_are_progress() {
    let failing = "echo 'error: the disk is full' >&2; exit 3";
    let folder = Folder::new(&[&format!("save 6; {failing}"), failing, "save 5; exit 3"]);
    let make = "mkdir -p out/step-00000007; ln -s step-00000007 out/latest; \
                echo '{\"history\":{\"run\":\"a\",\"resumed\":[]}}' > out/step-00000007/manifest.json";
    let made =
        std::process::Command::new("sh").args(["-c", make]).current_dir(folder.path(".")).status();
    assert!(made.unwrap().success());
    let run = folder.run("--max-restarts 2 -- ./train --save out");
    assert_eq!(run.code, Some(3));
    // The first restart does not wait.
    let lines = [
        "meshwright run: the disk is full; starting again from out/step-00000006 (restart 1 of 2 ",
        "meshwright run: the disk is full; starting again from out/step-00000006 in 1 s (restart 2 of 2 ",
        "error: the run has failed 3 times in a row without a further checkpoint; the last failure: a process ended \
         without an error message",
    ];
    for line in lines {
        assert!(run.stderr.contains(line), "no `{line}` in:\n{}", run.stderr);
    }
    assert_eq!(
        folder.args(),
        ["--save out", "--save out --resume auto", "--save out --resume auto"]
    );
}

#[test]
fn other_codes_end_the_run() {
    for (line, code) in [
        ("save 1; exit 0", 0),
        ("exit 2", 2),
        ("exit 4", 4),
        ("save 1; exit 75", 75),
        ("exit 1", 1),
        ("exit 127", 2),
        ("kill -TERM $$", 143),
        // It has saved nothing.
        ("exit 0", 2),
    ] {
        let folder = Folder::new(&[line, "exit 0"]);
        let run = folder.run("--max-restarts 3 -- ./train --save out");
        assert_eq!((run.code, folder.args().len()), (Some(code), 1), "{line}: {}", run.stderr);
        let events = if code == 2 { 0 } else { 2 };
        assert_eq!(folder.events().len(), events, "{line}");
    }
}

/// Without restarts, a lost process is an exit code that a scheduler knows.
#[test]
fn a_lost_process_has_the_code_of_a_failure() {
    let folder = Folder::new(&["kill -9 $$"]);
    let run = folder.run("-- ./train --lr 1");
    assert_eq!(run.code, Some(3));
    assert_eq!(run.stderr, "meshwright run: a process was ended by SIGKILL; exit code 3\n");
    assert!(!folder.path("run.log").exists());
}

#[test]
fn a_signal_between_attempts_ends_the_run() {
    let folder = Folder::new(&["exit 3", "exit 3", "echo waits > waits; exit 3", "exit 0"]);
    let child = folder.command("--max-restarts 9 -- ./train --save out").spawn().unwrap();
    folder.wait_for("waits");
    signal(&child.id().to_string(), "TERM");
    let run = finish(child);
    // The third attempt may have been running.
    assert!(matches!(run.code, Some(3 | 75)), "{}", run.stderr);
    assert_eq!(folder.args().len(), 3);
    assert!(run.stderr.contains("SIGTERM "), "{}", run.stderr);
}

/// The settings may be in a file.
#[test]
fn settings_of_a_file_are_found() {
    let folder = Folder::new(&["save 1; exit 3", "exit 0"]);
    folder.write("run.toml", "save = \"out\"\ndevice = \"gpu\"\n");
    let run = folder.run("--max-restarts 3 -- ./train --config run.toml");
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(folder.args(), ["--config run.toml", "--config run.toml --resume auto"]);
}

/// The program finds checkpoints in object storage itself, and the log has no place there.
#[test]
fn object_storage_is_left_to_the_program() {
    let folder = Folder::new(&["exit 3", "exit 3", "exit 0"]);
    let args = "--save s3://bucket/run --resume auto";
    let run = folder.run(&format!("--max-restarts 2 -- ./train {args}"));
    assert_eq!((run.code, folder.args()), (Some(0), vec![args.to_owned(); 3]), "{}", run.stderr);
    assert!(!folder.path("s3:").exists());
}

#[test]
fn a_folder_has_one_supervisor() {
    let folder = Folder::new(&["echo $$ > pid; sleep 100", "exit 0"]);
    let child = folder.command("-- ./train --save out").spawn().unwrap();
    folder.wait_for("pid");
    let second = folder.run("-- ./train --save out");
    assert_eq!(second.code, Some(2));
    let message = format!(
        "error: --save: out/run.log is that of another `meshwright run` (process {} on ",
        child.id()
    );
    assert!(second.stderr.starts_with(&message), "{}", second.stderr);
    assert!(second.stderr.contains(", which started attempt 1 at "), "{}", second.stderr);
    signal(&child.id().to_string(), "TERM");
    // The shell does not handle signals, so nothing is lost.
    assert_eq!(finish(child).code, Some(75));
    assert_eq!(folder.args().len(), 1);
}

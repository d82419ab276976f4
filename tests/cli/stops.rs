//! Stops of a run by signals and by `--stop-after`, after which it continues bit for bit.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Finished, PATIENCE, SMALL, Workspace, assert_contains, program};

/// Exit code of a run that was stopped and has saved its state.
const STOPPED: Option<i32> = Some(75);

/// A run in the background.
pub struct Running<'a> {
    workspace: &'a Workspace,
    child: Child,
    line: String,
}

impl Running<'_> {
    pub fn start<'a>(workspace: &'a Workspace, line: &str) -> Running<'a> {
        Running::with(workspace, program(), line)
    }

    pub fn with<'a>(workspace: &'a Workspace, mut command: Command, line: &str) -> Running<'a> {
        command.args(line.split_whitespace()).current_dir(workspace.path("."));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running { workspace, child: command.spawn().unwrap(), line: line.to_owned() }
    }

    /// Waits until `m.jsonl` has a number of lines.
    pub fn wait_for_steps(&mut self, steps: usize) {
        let start = Instant::now();
        let lines = |workspace: &Workspace| {
            let content = std::fs::read(workspace.path("m.jsonl")).unwrap_or_default();
            content.iter().filter(|byte| **byte == b'\n').count()
        };
        while lines(self.workspace) < steps {
            let ended = self.child.try_wait().unwrap();
            if ended.is_some() || start.elapsed() > PATIENCE {
                let _ = self.child.kill();
                panic!("{} does not reach step {steps}: {ended:?}", self.line);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sets the limit of the size of files.
    pub fn set_file_limit(&mut self, limit: &str) {
        let pid = self.child.id().to_string();
        let mut command = Command::new("prlimit");
        command.args(["--pid", &pid, &format!("--fsize={limit}:unlimited")]);
        assert!(command.status().unwrap().success());
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    pub fn finish(mut self) -> Finished {
        let start = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            if start.elapsed() > PATIENCE {
                self.child.kill().unwrap();
                panic!("still running: {}", self.line);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Finished::new(&self.line, self.child.wait_with_output().unwrap())
    }
}

impl Workspace {
    /// Returns the files of a checkpoint of `ranks` ranks that hold tensors.
    pub fn tensors(&self, checkpoint: &str) -> Vec<Vec<u8>> {
        let names = self.listing();
        let is_tensors =
            |name: &&String| name.starts_with(checkpoint) && name.ends_with(".safetensors");
        let files: Vec<_> = names.iter().filter(is_tensors).map(|name| self.read(name)).collect();
        assert!(!files.is_empty(), "no files in {checkpoint}");
        files
    }
}

const KINDS: [&str; 5] = [
    "--mesh dp=2,tp=2",
    "--mesh fsdp=2 --zero 3 --micro-batches 2 --ema 0.9",
    "--mesh pp=2 --micro-batches 2",
    "--mesh dp=2 --save-async --save-every 3",
    "--mesh 1 --order shuffled --save-every 2 --keep 1",
];

/// The last step is in a checkpoint, and a run that continues from it equals one that was not stopped.
#[test]
fn a_signal_loses_no_step() {
    for (index, kind) in KINDS.into_iter().enumerate() {
        let workspace = Workspace::new();
        let line = format!("{SMALL} {kind} --save out --metrics m.jsonl");
        let mut run = Running::start(&workspace, &format!("{line} --steps 1000000"));
        run.wait_for_steps(3 + index);
        let signal = ["TERM", "INT", "USR1"][index % 3];
        run.signal(signal);
        let stopped = run.finish();
        assert_eq!(stopped.code, STOPPED, "{kind}\n{}", stopped.stderr);
        let steps = workspace.metrics("m.jsonl").len();
        let report = format!(
            "\nstopped by SIG{signal} after step {steps} of 1000000; its state is saved in out/latest, "
        );
        assert_contains(&stopped.stderr, &report);
        assert_contains(&stopped.stderr, &format!("SIG{signal}: the run stops after this step, "));
        assert!(!stopped.stderr.contains("error"), "{}", stopped.stderr);
        assert!(workspace.path(&format!("out/step-{steps:08}/manifest.json")).is_file());
        let left: Vec<_> = workspace.folder_entries();
        assert!(left.iter().all(|name| !name.starts_with("out/.")), "{kind}: {left:?}");

        let steps = steps + 3;
        let kind = kind.replace("--save-every 3", "--save-every 1000");
        let line = format!("{kind} --steps {steps} --metrics m.jsonl");
        workspace.train(&format!("{line} --save out --resume out"));
        let resumed = workspace.metrics("m.jsonl");
        std::fs::remove_file(workspace.path("m.jsonl")).unwrap();
        workspace.train(&format!("{line} --save whole"));
        let whole = workspace.metrics("m.jsonl");
        for (resumed, whole) in resumed.iter().zip(&whole) {
            for key in ["step", "loss", "grad_norm"] {
                assert_eq!(resumed[key], whole[key], "{kind}");
            }
        }
        assert_eq!(resumed.len(), steps, "{kind}");
        let name = format!("step-{steps:08}");
        let [resumed, whole] =
            ["out", "whole"].map(|dir| workspace.tensors(&format!("{dir}/{name}")));
        assert!(resumed == whole, "{kind}");
    }
}

/// A program in a terminal that is closed gets SIGHUP; `nohup` makes it ignore that.
#[test]
fn a_closed_terminal_stops_a_run() {
    let workspace = Workspace::new();
    let line = format!("{SMALL} --save out --metrics m.jsonl --steps 1000000");
    let start = |launcher: &[&str]| {
        let mut command = Command::new(launcher[0]);
        command.args(&launcher[1..]).arg(program().get_program()).stdin(Stdio::null());
        let mut run = Running::with(&workspace, command, &line);
        run.wait_for_steps(3);
        run.signal("HUP");
        run
    };
    let stopped = start(&["env", "--default-signal=HUP"]).finish();
    assert_eq!(stopped.code, STOPPED, "{}", stopped.stderr);
    assert_contains(&stopped.stderr, "\nstopped by SIGHUP after step ");
    // A library of Open MPI may handle SIGHUP before the program starts.
    if cfg!(feature = "mpi") {
        return;
    }
    std::fs::remove_file(workspace.path("m.jsonl")).unwrap();
    let mut run = start(&["nohup"]);
    let steps = workspace.metrics("m.jsonl").len();
    run.wait_for_steps(steps + 3);
    run.signal("TERM");
    let stopped = run.finish();
    assert_eq!(stopped.code, STOPPED, "{}", stopped.stderr);
    assert!(!stopped.stderr.contains("SIGHUP"), "{}", stopped.stderr);
}

/// Nothing could be saved.
#[test]
fn a_run_without_checkpoints_ends_immediately() {
    let workspace = Workspace::new();
    let line = format!("{SMALL} --mesh dp=2 --steps 1000000 --metrics m.jsonl --export-hf hf");
    let mut run = Running::start(&workspace, &line);
    run.wait_for_steps(3);
    run.signal("TERM");
    let stopped = run.finish();
    assert_eq!(stopped.code, None, "{}", stopped.stderr);
    assert_contains(&stopped.stderr, "stopped by SIGTERM; the steps of this run are lost (");
    assert_contains(&stopped.stderr, "), as it has no --save DIR\n");
}

/// A step takes longer than the test waits for the end.
#[test]
fn a_second_signal_ends_the_run_immediately() {
    let workspace = Workspace::new();
    let line = "--data text.txt --hidden 128 --layers 2 --batch 64 --seq 128 --threads 1 --mesh dp=2 --sample-tokens 0 \
                --steps 1000000 --save out --metrics m.jsonl";
    let mut run = Running::start(&workspace, line);
    run.wait_for_steps(1);
    run.signal("INT");
    std::thread::sleep(Duration::from_millis(200));
    let start = Instant::now();
    run.signal("INT");
    let stopped = run.finish();
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!(stopped.code, None, "{}", stopped.stderr);
    assert_contains(
        &stopped.stderr,
        "SIGINT: the run stops after this step, and saves its state; ",
    );
    assert_contains(
        &stopped.stderr,
        "stopped immediately by a second signal, SIGINT; what was not saved",
    );
    assert!(!workspace.path("out/latest").exists());
}

/// A signal of the scheduler and of its process group arrive within moments.
#[test]
fn a_repeated_signal_counts_once() {
    let workspace = Workspace::new();
    let line = format!("{SMALL} --steps 1000000 --save out --metrics m.jsonl");
    let mut run = Running::start(&workspace, &line);
    run.wait_for_steps(3);
    let pid = run.child.id().to_string();
    assert!(Command::new("kill").args([&pid, &pid]).status().unwrap().success());
    assert_eq!(run.finish().code, STOPPED);
}

/// Too late for a stop: the run says so, and completes.
#[test]
fn a_signal_in_the_last_step_stops_nothing() {
    let workspace = Workspace::new();
    let long = SMALL.replace("--batch 4", "--batch 512");
    for mesh in ["1", "dp=2"] {
        let line = format!("{long} --mesh {mesh} --steps 4 --save out --metrics m.jsonl");
        let mut run = Running::start(&workspace, &line);
        run.wait_for_steps(3);
        run.signal("TERM");
        let done = run.finish();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        let last =
            "SIGTERM: the run completes its last step, and writes its results; a second signal";
        assert_contains(&done.stderr, last);
        assert_eq!(done.stderr.matches(last).count(), 1, "{}", done.stderr);
        assert!(workspace.path("out/step-00000004/manifest.json").is_file());
        for name in ["out", "m.jsonl"] {
            std::fs::rename(workspace.path(name), workspace.path(&format!("{name}-{mesh}")))
                .unwrap();
        }
    }
}

#[test]
fn a_time_limit_stops_like_a_signal() {
    let workspace = Workspace::new();
    let line = format!("{SMALL} --mesh dp=2 --steps 100000000 --save out --stop-after 1s");
    let start = Instant::now();
    let stopped = workspace.run(&line);
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert_eq!(stopped.code, STOPPED, "{}", stopped.stderr);
    assert_contains(&stopped.stderr, "\nstopped by --stop-after 1s after step ");
    assert!(workspace.path("out/latest/manifest.json").is_file());
}

/// A state that cannot be saved is not reported as saved.
#[test]
fn a_stop_that_cannot_save_fails() {
    let workspace = Workspace::new();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 100; exec \"$@\"", "sh"]).arg(program().get_program());
    let line = format!("{SMALL} --mesh dp=2 --steps 100000000 --save out --stop-after 1s");
    command.args(line.split_whitespace());
    let stopped = workspace.finish(command, &line);
    let error = stopped.error();
    assert_contains(error, "error: stopped by --stop-after 1s after step ");
    assert_contains(
        error,
        ", but its state could not be saved: --save: cannot write out/.tmp-step-",
    );
    assert_contains(error, "File too large");
}

#[test]
fn time_limits_are_checked() {
    let workspace = Workspace::new();
    for (flags, error) in [
        (
            "--save out --stop-after 90",
            "error: --stop-after: must be a time such as 3h50m, 90s or 2d, not `90`",
        ),
        (
            "--save out --stop-after 0s",
            "error: --stop-after: must be a time such as 3h50m, 90s or 2d, not `0s`",
        ),
        (
            "--stop-after 90s",
            "error: --stop-after: needs --save DIR, from which the run is continued",
        ),
    ] {
        assert_eq!(workspace.run(&format!("{SMALL} {flags}")).error(), error);
    }
}

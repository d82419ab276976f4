//! `meshwright run`: processes that are started, stopped and started again. The programs are shell scripts.

mod launchers;
mod processes;
mod refusals;
mod restarts;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use meshwright::checkpoint::{RunEvent, RunLog};

/// Time limit of what a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that trains nothing: attempt N runs line N of `plan`, which may `save` a checkpoint of a step, and
/// `report` to the supervisor.
const TRAIN: &str = r#"#!/bin/sh
n=$(($(cat count 2>/dev/null || echo 0) + 1))
echo $n > count
echo "$@" >> args
save() {
    mkdir -p out/step-0000000$1
    echo "{\"history\":{\"run\":\"run$n\",\"resumed\":[]}}" > out/step-0000000$1/manifest.json
    ln -sfn step-0000000$1 out/latest
}
report() {
    [ -z "$MESHWRIGHT_RUN_REPORTS" ] || echo "$1" >> "$MESHWRIGHT_RUN_REPORTS"
}
report '"started"'
eval "$(sed -n "${n}p" plan)"
"#;

/// A folder with the program `train`.
struct Folder(tempfile::TempDir);

impl Folder {
    /// Creates the folder. Each attempt runs a line of `plan`.
    fn new(plan: &[&str]) -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        folder.write("plan", &plan.join("\n"));
        folder.add_program("train", TRAIN);
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Writes a script, by a process of its own: the system starts no file that is open for writing, as in processes
    /// that other tests start meanwhile.
    fn add_program(&self, name: &str, text: &str) {
        let source = self.path(&format!("{name}.sh"));
        fs::write(&source, text).unwrap();
        fs::set_permissions(&source, fs::Permissions::from_mode(0o755)).unwrap();
        let copied = Command::new("cp").args(["-p"]).args([source, self.path(name)]).status();
        assert!(copied.unwrap().success());
    }

    /// Prepares `meshwright run`, with this folder first in PATH.
    fn command(&self, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
        let path = std::env::var("PATH").unwrap();
        command.arg("run").args(args.split_whitespace()).current_dir(self.0.path());
        command.env("PATH", format!("{}:{path}", self.0.path().display()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs `meshwright run` to its end.
    fn run(&self, args: &str) -> Ended {
        Ended::new(self.command(args).output().unwrap())
    }

    /// Returns the arguments of each attempt.
    fn args(&self) -> Vec<String> {
        self.read("args").lines().map(str::to_owned).collect()
    }

    fn events(&self) -> Vec<RunEvent> {
        RunLog::read(&self.path("out")).unwrap()
    }

    /// Waits until a file has content, and returns it.
    fn wait_for(&self, name: &str) -> String {
        let start = Instant::now();
        loop {
            let text = self.read(name);
            if text.ends_with('\n') {
                return text.trim().to_owned();
            }
            assert!(start.elapsed() < PATIENCE, "no {name}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The exit code and the texts of a program.
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ended {
    fn new(Output { status, stdout, stderr }: Output) -> Ended {
        let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
        Ended { code: status.code(), stdout, stderr }
    }
}

fn signal(pid: &str, name: &str) {
    assert!(Command::new("kill").args(["-s", name, pid]).status().unwrap().success());
}

fn finish(child: Child) -> Ended {
    Ended::new(child.wait_with_output().unwrap())
}

/// Waits until a process has ended.
fn wait_for_end(pid: &str) {
    let start = Instant::now();
    loop {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if stat.is_empty() || stat.contains(") Z ") {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "process {pid} goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

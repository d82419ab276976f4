//! End-to-end tests of the training programs `train_llama` and `train_gpt2`, each run in a temporary folder.

mod architecture;
mod async_saving;
mod book;
mod data;
mod dry_runs;
mod exit_codes;
mod explain;
mod failed_saves;
mod families;
mod faults;
mod flight;
mod folders;
mod forged;
mod local_sgd;
mod meshes;
mod monitoring;
mod outputs;
mod pages;
mod picking;
mod pipelines;
mod plan;
mod preflight;
#[cfg(feature = "mpi")]
mod processes;
mod record;
mod refusals;
#[cfg(feature = "remote")]
mod remote;
mod reports;
mod requeue;
mod resuming;
mod saving;
mod simulation;
mod step_sizes;
mod stops;
mod tensorboard;
mod tokenizer;
mod training;
mod validation;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Flags for a model that trains in milliseconds on the workspace's text.
const SMALL: &str = "--hidden 32 --layers 2 --heads 4 --kv-heads 2 --ffn 48 --data text.txt \
                     --seq 16 --batch 4 --threads 1 --sample-tokens 0";

/// Timeout of a run, after which it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(100);

/// The program under test.
fn program() -> Command {
    command(env!("CARGO_BIN_EXE_train_llama"))
}

/// The training program for GPT-2.
fn gpt2_program() -> Command {
    command(env!("CARGO_BIN_EXE_train_gpt2"))
}

/// The training program for Mixtral.
fn mixtral_program() -> Command {
    command(env!("CARGO_BIN_EXE_train_mixtral"))
}

/// The training program for all families.
fn family_program() -> Command {
    command(env!("CARGO_BIN_EXE_train"))
}

fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    // Makes a backtrace visible if the program panics.
    command.env("RUST_BACKTRACE", "1").stdin(Stdio::null());
    command
}

/// Path of a fixture: a Hugging Face folder written by PyTorch, with a `tokens.bin`.
fn fixture(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("reference/fixtures").join(case)
}

/// A temporary working directory with a `text.txt`.
struct Workspace {
    dir: tempfile::TempDir,
}

impl Workspace {
    fn new() -> Workspace {
        let workspace = Workspace { dir: tempfile::tempdir().unwrap() };
        let text: String = (0..400).map(|n| format!("{n} times {n} is {}\n", n * n)).collect();
        workspace.write("text.txt", text.as_bytes());
        workspace
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, content: &[u8]) {
        std::fs::write(self.path(name), content).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Copies a fixture to the folder `name`, which a test may then modify.
    fn copy_fixture(&self, case: &str, name: &str) {
        std::fs::create_dir(self.path(name)).unwrap();
        for entry in std::fs::read_dir(fixture(case)).unwrap() {
            let from = entry.unwrap().path();
            std::fs::copy(&from, self.path(name).join(from.file_name().unwrap())).unwrap();
        }
    }

    /// Lists all files and folders recursively, including hidden ones, sorted. The last calls of a failed run are not
    /// part of its state.
    fn listing(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![self.dir.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.ends_with("flight") {
                    continue;
                }
                let name = path.strip_prefix(self.dir.path()).unwrap().display().to_string();
                found.push(name);
                if path.is_dir() && !path.is_symlink() {
                    folders.push(path);
                }
            }
        }
        found.sort();
        found
    }

    /// Lists what is directly in the folders of the workspace, sorted.
    fn folder_entries(&self) -> Vec<String> {
        let mut names = self.listing();
        names.retain(|name| name.matches('/').count() == 1);
        names
    }

    /// Runs the program with the words of `line` as its arguments.
    fn run(&self, line: &str) -> Finished {
        self.run_program(program(), line)
    }

    /// Runs the GPT-2 program with the words of `line` as its arguments.
    fn run_gpt2(&self, line: &str) -> Finished {
        self.run_program(gpt2_program(), line)
    }

    fn run_program(&self, mut command: Command, line: &str) -> Finished {
        command.args(line.split_whitespace());
        self.finish(command, line)
    }

    /// Runs the program with `SMALL` and the words of `line`, and asserts success.
    #[track_caller]
    fn train(&self, line: &str) -> Finished {
        let finished = self.run(&format!("{SMALL} {line}"));
        assert_eq!(finished.code, Some(0), "{line}\n{}", finished.stderr);
        finished
    }

    /// Runs a command in this folder to its end, with a timeout.
    fn finish(&self, mut command: Command, line: &str) -> Finished {
        command.current_dir(self.dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let start = Instant::now();
        // The output fits into the buffer of a pipe.
        while child.try_wait().unwrap().is_none() {
            if start.elapsed() > PATIENCE {
                child.kill().unwrap();
                panic!("still running after {} s: {line}", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Finished::new(line, child.wait_with_output().unwrap())
    }

    /// Reads a metrics file, which has one object per step.
    fn metrics(&self, name: &str) -> Vec<Value> {
        let text = String::from_utf8(self.read(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Trains with `--metrics`, and returns the loss of every step.
    #[track_caller]
    fn losses(&self, line: &str) -> Vec<f64> {
        self.train(&format!("{line} --metrics losses.jsonl"));
        numbers(&self.metrics("losses.jsonl"), "loss")
    }
}

fn numbers(steps: &[Value], key: &str) -> Vec<f64> {
    steps.iter().map(|step| step[key].as_f64().unwrap()).collect()
}

/// The result of a run.
struct Finished {
    line: String,
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Finished {
    fn new(line: &str, output: Output) -> Finished {
        Finished {
            line: line.to_owned(),
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Returns the error message of a failed run, after checking for the exit code of its kind, a single `error:` and
    /// no panic.
    #[track_caller]
    fn error(&self) -> &str {
        let Finished { line, code, stdout, stderr } = self;
        assert_eq!(*code, Some(code_of(stderr)), "{line}\n{stdout}\n{stderr}");
        assert_eq!(stderr.matches("error: ").count(), 1, "{line}\n{stderr}");
        for word in ["panic", "backtrace", "RUST_BACKTRACE", "unwrap", ".rs:"] {
            assert!(!stderr.contains(word), "`{word}` after {line}\n{stderr}");
        }
        let at = stderr.find("error: ").unwrap();
        assert!(at == 0 || stderr[..at].ends_with('\n'), "{line}\n{stderr}");
        stderr[at..].trim_end()
    }
}

/// Returns the exit code after a message: of lost files and memory, of runs that would fail again, and of all others.
fn code_of(message: &str) -> i32 {
    let names = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
    if names(&["No space left", "File too large", "Input/output error", ": out of memory: "]) {
        3
    } else if names(&["; training stopped"]) {
        4
    } else {
        2
    }
}

#[track_caller]
fn assert_contains(text: &str, part: &str) {
    assert!(text.contains(part), "no `{part}` in:\n{text}");
}

/// Asserts that each number is within a relative tolerance of the expected one.
#[track_caller]
fn assert_close(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{found:?}\n{expected:?}");
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() <= tolerance * b.abs(), "{a} is not {b}:\n{found:?}\n{expected:?}");
    }
}

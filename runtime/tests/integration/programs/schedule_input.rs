//! The input of `meshwright schedule`, without GPU support.

use std::process::{Command, Output};

/// Runs the program, and returns its exit code and output.
fn meshwright(args: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    let Output { status, stdout, stderr } = command.args(args.split(' ')).output().unwrap();
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
    (status.code().unwrap(), stdout, stderr)
}

#[test]
fn a_schedule_is_read_from_a_pipe_with_a_writer() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe.csv");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let args = format!("schedule --check {}", pipe.display());
    let (code, stdout, stderr) = meshwright(&args);
    let expected =
        format!("error: --check {}: it is a pipe to which no program writes;", pipe.display());
    assert!(code == 2 && stdout.is_empty() && stderr.starts_with(&expected), "{stderr}");

    std::thread::scope(|scope| {
        scope.spawn(|| std::fs::write(&pipe, "0F0,0B0\n").unwrap());
        let (code, stdout, stderr) = meshwright(&args);
        assert!(code == 0 && stdout.starts_with("schedule: 1 rank,"), "{stdout}{stderr}");
    });
}

//! Exit codes of programs, which tell schedulers if a program should be started again.

use std::process::Command;

use crate::{SMALL, Workspace, assert_contains};

/// Environment variable that makes the program of these tests panic.
const PANICS: &str = "MESHWRIGHT_TEST_PANICS";

#[test]
fn errors_have_the_code_of_their_kind() {
    let workspace = Workspace::new();
    for (flags, code) in [
        ("--steps 1", 0),
        ("--help", 0),
        ("--steps none", 2),
        ("--data missing.txt", 2),
        ("--mesh tp=3", 2),
        ("--resume out", 2),
        ("--steps 3 --metrics missing/m.jsonl", 2),
        ("--steps 3 --metrics /dev/full", 3),
        ("--steps 1 --trace /dev/full", 3),
        ("--steps 9 --lr 1e30 --mesh dp=2,tp=2", 4),
        (
            "--steps 1 --lr 1e39 --optimizer sgd --momentum 0 --clip 0 --mesh pp=2 --micro-batches 2",
            4,
        ),
    ] {
        // A flag is given once.
        let small = if flags.contains("--data") {
            SMALL.replace("--data text.txt", "")
        } else {
            SMALL.into()
        };
        let finished = workspace.run(&format!("{small} {flags}"));
        assert_eq!(finished.code, Some(code), "{flags}\n{}", finished.stderr);
    }
}

/// The message is that of the standard library.
#[test]
fn a_panic_is_worth_another_attempt() {
    if std::env::var_os(PANICS).is_some() {
        meshwright::exit_code::exit_on_panic(|| panic!("a fault of the program"));
    }
    let workspace = Workspace::new();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(PANICS, "1").env("RUST_BACKTRACE", "0");
    command.args(["--exact", "--nocapture", "exit_codes::a_panic_is_worth_another_attempt"]);
    let finished = workspace.finish(command, "a panic");
    assert_eq!(finished.code, Some(3), "{}", finished.stderr);
    assert_contains(&finished.stderr, "panicked at ");
    assert_contains(&finished.stderr, "a fault of the program");
}

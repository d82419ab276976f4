//! Standard output that is full, or a closed pipe.

use std::fs::File;
use std::process::{Command, Stdio};

/// Programs and arguments that print a text.
const PRINTING: [(&str, &[&str]); 5] = [
    (env!("CARGO_BIN_EXE_meshwright"), &["--help"]),
    (env!("CARGO_BIN_EXE_meshwright"), &["schedule"]),
    (env!("CARGO_BIN_EXE_meshwright"), &["schedule", "--help"]),
    (env!("CARGO_BIN_EXE_meshwright"), &["clusters"]),
    (env!("CARGO_BIN_EXE_tokenize"), &["--help"]),
];

#[test]
fn a_full_standard_output_is_an_error() {
    for (program, args) in PRINTING {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let child = Command::new(program).args(args).stdout(full).stderr(Stdio::piped()).spawn();
        let output = child.unwrap().wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{program} {args:?}: {stderr}");
        let message = "error: cannot write to standard output: No space left on device";
        assert!(stderr.starts_with(message), "{program} {args:?}: {stderr}");
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    for (program, args) in PRINTING {
        let mut command = Command::new(program);
        let mut child =
            command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""), "{program} {args:?}");
    }
}

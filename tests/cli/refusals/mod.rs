//! Invalid input: one message that names the value, the cause and the fix, before any file is written.

mod data;
mod files;
mod memory;
mod meshes;
mod outputs;
mod settings;

use crate::{Workspace, assert_contains};

/// Asserts that each line is refused with a message that contains all parts, and leaves the folder unchanged.
#[track_caller]
fn assert_refused(workspace: &Workspace, cases: &[(&str, &[&str])]) {
    let before = workspace.listing();
    for (line, parts) in cases {
        let finished = workspace.run(line);
        let error = finished.error();
        assert_eq!(finished.stdout, "", "{line}");
        assert!(finished.stderr.starts_with("error: "), "{line}\n{}", finished.stderr);
        for part in *parts {
            assert_contains(error, part);
        }
        assert_eq!(workspace.listing(), before, "{line}");
    }
}

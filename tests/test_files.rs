//! Every file in the folders of tests belongs to a program: a file without a `mod` line would not be compiled.

use std::fs;
use std::path::Path;

/// Programs with folders of modules, and the files that are declared elsewhere: in `lib.rs` or in `Cargo.toml`.
const PROGRAMS: [(&str, &[&str]); 7] = [
    ("gpu-sim/tests/device/main.rs", &[]),
    ("runtime/comm/tests/threads.rs", &["processes"]),
    ("runtime/tests/integration/main.rs", &[]),
    ("tests/cli/main.rs", &[]),
    ("tests/conformance/src/lib.rs", &[]),
    ("tests/meshes/main.rs", &[]),
    (
        "tests/main.rs",
        &[
            "build",
            "cli",
            "compare",
            "console_blocks",
            "data",
            "gpu_check",
            "lanes",
            "lib",
            "live_allocations",
            "meshes",
            "models",
            "pipeline_run",
            "run",
            "step_logs",
            "ui",
            "words",
        ],
    ),
];

#[test]
fn every_test_file_is_a_module() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in a workspace");
    for (program, others) in PROGRAMS {
        check_modules(&root.join(program), others);
    }
}

/// Checks that `file` declares all other files and folders of its folder, and the same for each folder.
fn check_modules(file: &Path, others: &[&str]) {
    let text =
        fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let folder = file.parent().expect("a file is in a folder");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let root = path.join("mod.rs");
        let is_module =
            root.exists() || path.extension().is_some_and(|extension| extension == "rs");
        if path == file || !is_module || others.contains(&name.as_str()) {
            continue;
        }
        let is_declared = text.lines().any(|line| {
            line.trim_start_matches("pub ")
                .strip_prefix("mod ")
                .and_then(|rest| rest.strip_suffix(';'))
                == Some(&name)
        });
        assert!(is_declared, "{} has no `mod {name};`", file.display());
        if root.exists() {
            check_modules(&root, &[]);
        }
    }
}

//! `meshwright new`: the project that it writes builds and passes its tests, and nothing is written over.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn new_project(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    command.current_dir(folder).arg("new").args(args).output().unwrap()
}

#[test]
fn the_tests_of_a_new_project_pass() {
    let dir = tempfile::tempdir().unwrap();
    let written = new_project(dir.path(), &["my-model"]);
    assert!(written.status.success(), "{written:?}");
    let project = dir.path().join("my-model");
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let manifest = fs::read_to_string(project.join("Cargo.toml")).unwrap();
    let dependency = format!("meshwright = {{ path = '{}' }}", checkout.join("runtime").display());
    assert!(manifest.contains(&dependency), "{manifest}");
    // The versions of the workspace, which are on this machine.
    fs::copy(checkout.join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    let format =
        Command::new(env!("CARGO")).current_dir(&project).args(["fmt", "--check"]).output();
    assert!(format.as_ref().unwrap().status.success(), "{format:?}");
    let target = checkout.join("target/tests/new_project");
    let tests = Command::new(env!("CARGO"))
        .current_dir(&project)
        .args(["test", "--offline", "--quiet"])
        // The tests take less time than the optimization of the kernels.
        .args(["--config", "profile.dev.package.'*'.opt-level = 0"])
        .args(["--config", "profile.dev.debug = false"])
        .env("CARGO_TARGET_DIR", &target)
        .output()
        .unwrap();
    let [out, err] = [&tests.stdout, &tests.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(tests.status.success(), "{out}\n{err}");
    assert!(out.contains("4 passed"), "{out}");

    let small = "--steps 2 --hidden 16 --layers 1 --heads 2 --seq 16 --batch 2 --sample-tokens 0";
    let trained = Command::new(target.join("debug/my-model"))
        .current_dir(&project)
        .args(small.split(' '))
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&trained.stderr);
    let lines = "    [profile.dev.package.\"*\"]\n    opt-level = 3\n";
    assert!(trained.status.success() && err.matches(lines).count() == 1, "{err}");
}

#[test]
fn bad_projects_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("taken")).unwrap();
    fs::write(dir.path().join("taken/notes.txt"), "notes").unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    for (args, message) in [
        (&["My Model"][..], "`My Model` does not end in the name of a package"),
        (&["1st"], "does not end in the name"),
        (&["m", "--pth", "x"], "error: unknown flag `--pth`; did you mean `--path`?\n"),
        (&["m", "--name", "x"], "error: unknown flag `--name`; --help lists them all\n"),
        (&[], "error: needs <DIR>; --help explains it\n"),
        (&["test"], "does not end in the name"),
        (&["meshwright"], "does not end in the name"),
        (&[".."], "does not end in the name"),
        (&["taken"], "taken is not empty; name a new folder"),
        (&["file"], "cannot read file: Not a directory"),
        (&["other", "--path", "taken"], "--path: taken is no checkout of Meshwright"),
    ] {
        let output = new_project(dir.path(), args);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.contains(message), "{args:?}: {text}");
    }
    assert_eq!(fs::read(dir.path().join("taken/notes.txt")).unwrap(), b"notes");
    assert!(!dir.path().join("other").exists());
}

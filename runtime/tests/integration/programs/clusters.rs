//! `meshwright clusters`: the catalog of clusters, and files of users.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the subcommand in a folder; returns its exit code and its texts.
fn clusters(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    let Output { status, stdout, stderr } =
        command.arg("clusters").args(args).current_dir(dir).output().unwrap();
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
    (status.code().unwrap(), stdout, stderr)
}

#[test]
fn clusters_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let (code, stdout, stderr) = clusters(dir.path(), &[]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let row = |name: &str| {
        let row = stdout.lines().find(|line| line.split(' ').next() == Some(name));
        row.unwrap_or_else(|| panic!("{name}\n{stdout}"))
            .split("  ")
            .map(str::trim)
            .collect::<Vec<_>>()
    };
    let cells = |name| row(name).into_iter().filter(|cell| !cell.is_empty()).collect::<Vec<_>>();
    let h100 = cells("h100-dgx");
    assert_eq!(h100[1..4], ["h100-sxm", "989.4 bf16", "80 GB at 3350 GB/s"]);
    assert_eq!(h100[4..7], ["8 at 450 GB/s", "50", "measured, +-8 %"]);
    assert_eq!(cells("llama3")[5], "50, 50, 7.14");
    assert_eq!(cells("k40-box")[2], "4.29 f32");
}

/// A printed description is a file that can be edited and used.
#[test]
fn a_printed_cluster_can_be_edited() {
    let dir = tempfile::tempdir().unwrap();
    let (code, printed, stderr) = clusters(dir.path(), &["show", "h100"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let path = dir.path().join("my.toml");
    fs::write(&path, &printed).unwrap();
    assert_eq!(clusters(dir.path(), &["show", "my.toml"]).1, printed);

    fs::write(
        &path,
        printed.replace("h100-dgx\"", "mine\"").replace("memory_gb = 80", "memory_gb = 64"),
    )
    .unwrap();
    let (code, listed, _) = clusters(dir.path(), &["--clusters", "my.toml"]);
    assert!(code == 0 && listed.contains("\nmine "), "{listed}");
    let (code, shown, _) = clusters(dir.path(), &["show", "mine", "--clusters", "."]);
    assert!(code == 0 && shown.contains("memory_gb = 64"), "{shown}");
    // The file's GPU has the name of a built-in one, and replaces it.
    let (_, gpu, _) = clusters(dir.path(), &["--clusters", ".", "show", "h100-sxm"]);
    assert!(gpu.contains("memory_gb = 64") && !gpu.contains("[cluster]"), "{gpu}");
}

#[test]
fn bad_input_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("bad.toml"), "[cluster]\nname = \"bad\"\ngpu = \"h100-sxn\"\n")
        .unwrap();
    for (args, message) in [
        (
            &["show", "h10"][..],
            "error: unknown cluster or GPU `h10`; of clusters, did you mean `h100`? known are",
        ),
        (&["show", "h100-sxn"], "of GPUs, did you mean `h100-sxm`?"),
        (&["show", "none.toml"], "error: none.toml: No such file or directory"),
        (
            &["show", "bad.toml"],
            "error: bad.toml:3: `cluster.gpu` names an unknown GPU `h100-sxn`; did you mean `h100-sxm`?",
        ),
        (&["--clusters", "bad.toml"], "error: bad.toml:3: "),
        (&["--clusters", "none"], "error: none: No such file or directory"),
        (&["show"], "error: needs <NAME>; --help explains it"),
        (&["list"], "error: unknown command `list`"),
        (&["--cluster", "x"], "error: unknown flag `--cluster`; did you mean `--clusters`?"),
    ] {
        let (code, stdout, stderr) = clusters(dir.path(), args);
        assert!(
            code == 2 && stdout.is_empty() && stderr.contains(message),
            "{args:?} {code}: {stderr}"
        );
    }
}

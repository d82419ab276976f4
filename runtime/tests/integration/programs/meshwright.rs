//! The program `meshwright`, as its users meet it.

#[path = "../../native_driver/stubs.rs"]
mod stubs;

use std::path::Path;
use std::process::{Command, Output};

/// Runs it with folders of libraries, or with the libraries of this machine, and a cache of its own.
fn meshwright(libraries: Option<&Path>, cache: &Path, args: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    command.env("MESHWRIGHT_CACHE", cache).args(args.split(' '));
    if let Some(libraries) = libraries {
        command.env("MESHWRIGHT_CUDA_LIBS", libraries);
    }
    let Output { status, stdout, stderr } = command.output().unwrap();
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
    (status.code().unwrap(), stdout, stderr)
}

#[test]
fn missing_libraries_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let (code, stdout, _) = meshwright(Some(dir.path()), dir.path(), "probe");
    for library in ["NVRTC", "cuBLASLt", "cuDNN", "NCCL"] {
        assert!(stdout.contains(&format!("not found: {library} was not found (")), "{stdout}");
    }
    assert_eq!(code, 1, "a rank cannot work without these");
    assert!(stdout.lines().last().unwrap().starts_with("no GPU can be used: "), "{stdout}");
}

#[test]
fn a_driver_without_a_device_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    stubs::make_all(dir.path(), &["-DNO_DEVICE"]);
    let (code, stdout, _) = meshwright(Some(dir.path()), dir.path(), "probe");
    assert_eq!(code, 1);
    let path = dir.path().join("libcuda.so.1");
    assert!(stdout.starts_with(&format!("the CUDA driver 13.0: {}\n", path.display())), "{stdout}");
    assert!(
        stdout.contains(&format!(
            "no GPU can be used: {} (CUDA 13.0) reports no GPU (CUDA_ERROR_NO_DEVICE, no CUDA-capable device is \
             detected): check what `nvidia-smi` prints, and CUDA_VISIBLE_DEVICES;",
            path.display()
        )),
        "{stdout}"
    );
}

#[test]
fn a_device_is_reported_with_its_sizes() {
    let dir = tempfile::tempdir().unwrap();
    stubs::make_all(dir.path(), &[]);
    let (code, stdout, _) = meshwright(Some(dir.path()), dir.path(), "probe");
    assert_eq!(code, 0, "{stdout}");
    let line = "GPU 0: Stub H100, compute capability 9.0, 132 multiprocessors, 80.0 GiB";
    assert_eq!(stdout.lines().last(), Some(line));
}

#[test]
fn schedules_are_drawn_exported_and_checked() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (svg, csv, full) = (path("a.svg"), path("a.csv"), path("full.csv"));
    let args = format!(
        "schedule --pp 2 --micro-batches 4 --costs 1,0.5,0.5,0 --svg {svg} --csv {csv} --csv-full {full}"
    );
    let (code, stdout, stderr) = meshwright(None, dir.path(), &args);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let title = "1f1b: 2 ranks, 2 stages, 4 micro-batches; makespan 10, bubble 20.0 %\n";
    assert!(stdout.starts_with(title), "{stdout}");
    assert!(
        stdout.ends_with(
            "rank 0 F0 F1 ...B0 F2 B1 F3 B2 ...B3\nrank 1 ...F0 B0 F1 B1 F2 B2 F3 B3 ...\n"
        ),
        "{stdout}"
    );
    assert!(std::fs::read_to_string(svg).unwrap().matches("<rect class=\"F").count() >= 8);

    for file in [&csv, &full] {
        let check = format!("schedule --check {file} --schedule 1f1b");
        let (code, stdout, _) = meshwright(None, dir.path(), &check);
        assert!(code == 0 && stdout.starts_with("1f1b: 2 ranks"), "{stdout}");
    }
    let other = format!("schedule --check {csv} --schedule gpipe");
    let (code, stdout, _) = meshwright(None, dir.path(), &other);
    let expected = "REFUSED rank 0, action 2: `0B0`, where gpipe has `0F2`\n";
    assert!(code == 1 && stdout.starts_with(expected), "{stdout}");
}

#[test]
fn bad_schedules_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("broken.csv");
    std::fs::write(&file, "0F0,0Q0\n").unwrap();
    let check = format!("--check {}", file.display());
    for (args, expected) in [
        (check.as_str(), "rank 0, action 1: `0Q0` is not an action"),
        ("--schedule zb", "`zb` is not a schedule: choose one of gpipe, 1f1b, "),
        ("--virtual-stages 2", "1f1b has one stage per rank, not 2"),
        ("--pp 0", "the number of ranks is 0"),
        ("--costs 1,1", "--costs 1,1: write four times"),
        ("--pp 4096 --micro-batches 4096", "forward passes: at most 65536 are drawn"),
    ] {
        let (code, _, stderr) = meshwright(None, dir.path(), &format!("schedule {args}"));
        assert!(code == 2 && stderr.contains(expected), "{args}: {stderr}");
    }
}

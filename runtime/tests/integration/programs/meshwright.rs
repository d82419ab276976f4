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
fn without_the_compiler_it_says_what_to_install() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let (code, stdout, stderr) = meshwright(Some(&empty), dir.path(), "kernels --check");
    let expected = format!(
        "error: NVRTC was not found (searched libnvrtc.so.13 or libnvrtc.so.12 or libnvrtc.so in the folders of \
         MESHWRIGHT_CUDA_LIBS ({})): install it, for example by `pip install nvidia-cuda-nvrtc`, and put its folder \
         into MESHWRIGHT_CUDA_LIBS\n",
        empty.display()
    );
    assert_eq!((code, stdout.as_str(), stderr), (2, "", expected));
}

#[test]
fn kernels_are_compiled_once_and_told_of_in_a_table() {
    let dir = tempfile::tempdir().unwrap();
    let args = "kernels --check rope --arch sm_80,sm_90a";
    let (code, stdout, stderr) = meshwright(None, dir.path(), args);
    if code == 2 {
        // The other test has the whole message.
        assert!(stderr.starts_with("error: NVRTC was not found ("), "{stderr}");
        return;
    }
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert!(stdout.contains("\nrope/rope_bf16 "), "{stdout}");
    assert!(stdout.contains("1 sources for sm_80, sm_90a: ") && stdout.contains(" 2 compilations"));
    assert!(stdout.ends_with("; 0 refused\n"), "{stdout}");

    let (code, again, _) = meshwright(None, dir.path(), args);
    assert!(code == 0 && again.contains(" 0 compilations; 0 refused"), "{again}");
    let table = |text: &str| text.lines().filter(|line| line.starts_with("rope/")).count();
    assert_eq!(table(&again), table(&stdout));

    let (code, stdout, stderr) = meshwright(None, dir.path(), "kernels --check rope --arch sm_1");
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.contains("kernel source `rope` does not compile for sm_1:"), "{stderr}");
}

#[test]
fn sources_are_listed_and_found_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (code, stdout, _) = meshwright(None, dir.path(), "kernels");
    assert_eq!(code, 0);
    let names: Vec<&str> = stdout.lines().collect();
    for part in ["rope", "attention_forward_64", "map_backward_"] {
        assert!(names.iter().any(|name| name.starts_with(part)), "{stdout}");
    }
    let (code, _, stderr) = meshwright(None, dir.path(), "kernels rpoe");
    assert_eq!(code, 2);
    assert!(stderr.starts_with("error: there is no kernel source `rpoe`"), "{stderr}");
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

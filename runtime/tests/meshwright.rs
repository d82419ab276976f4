//! The program `meshwright`, as its users meet it.
#![cfg(feature = "cuda")]

#[path = "native_driver/stubs.rs"]
mod stubs;

use std::path::Path;
use std::process::{Command, Output};

/// Runs it with folders of libraries, or with those of this machine, and a cache of its own.
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
        "error: NVRTC was not found, looked for libnvrtc.so.13 or libnvrtc.so.12 or libnvrtc.so in the folders of \
         MESHWRIGHT_CUDA_LIBS ({}): install it, for example by `pip install nvidia-cuda-nvrtc`, and put its folder into \
         MESHWRIGHT_CUDA_LIBS\n",
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
        assert!(stderr.starts_with("error: NVRTC was not found, "), "{stderr}");
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
fn every_library_is_told_of_whether_it_is_there_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let (code, stdout, _) = meshwright(Some(dir.path()), dir.path(), "probe");
    for library in ["NVRTC", "cuBLASLt", "cuDNN", "NCCL"] {
        assert!(stdout.contains(&format!("not there: {library} was not found, ")), "{stdout}");
    }
    assert_eq!(code, 1, "a rank cannot work without these");
    assert!(stdout.lines().last().unwrap().starts_with("no GPU can be used: "), "{stdout}");
}

#[test]
fn a_driver_without_a_device_is_told_from_no_driver() {
    let dir = tempfile::tempdir().unwrap();
    stubs::make_all(dir.path(), &["-DNO_DEVICE"]);
    let (code, stdout, _) = meshwright(Some(dir.path()), dir.path(), "probe");
    assert_eq!(code, 1);
    let path = dir.path().join("libcuda.so.1");
    assert!(stdout.starts_with(&format!("the CUDA driver 13.0: {}\n", path.display())), "{stdout}");
    assert!(
        stdout.contains(&format!(
            "no GPU can be used: {} (CUDA 13.0) reports no GPU (CUDA_ERROR_NO_DEVICE, no CUDA-capable device is detected): \
             check what `nvidia-smi` prints, and CUDA_VISIBLE_DEVICES;",
            path.display()
        )),
        "{stdout}"
    );
}

#[test]
fn a_device_is_told_of_with_its_sizes() {
    let dir = tempfile::tempdir().unwrap();
    stubs::make_all(dir.path(), &[]);
    let (code, stdout, _) = meshwright(Some(dir.path()), dir.path(), "probe");
    assert_eq!(code, 0, "{stdout}");
    let line = "GPU 0: Stub H100, compute capability 9.0, 132 multiprocessors, 80.0 GiB";
    assert_eq!(stdout.lines().last(), Some(line));
}

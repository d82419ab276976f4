//! The program `kernel_check`, as its users meet it.

use std::path::Path;
use std::process::{Command, Output};

/// Runs it with folders of libraries, or with the libraries of this machine, and a cache of its own.
fn kernel_check(libraries: Option<&Path>, cache: &Path, args: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kernel_check"));
    command.env("MESHWRIGHT_CACHE", cache).args(args.split_whitespace());
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
    let (code, stdout, stderr) = kernel_check(Some(&empty), dir.path(), "");
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
    let args = "rope --arch sm_80,sm_90a";
    let (code, stdout, stderr) = kernel_check(None, dir.path(), args);
    if code == 2 {
        // The other test has the whole message.
        assert!(stderr.starts_with("error: NVRTC was not found ("), "{stderr}");
        return;
    }
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert!(stdout.contains("\nrope/rope_bf16 "), "{stdout}");
    assert!(stdout.contains("1 sources for sm_80, sm_90a: ") && stdout.contains(" 2 compilations"));
    assert!(stdout.ends_with("; 0 refused\n"), "{stdout}");

    let (code, again, _) = kernel_check(None, dir.path(), args);
    assert!(code == 0 && again.contains(" 0 compilations; 0 refused"), "{again}");
    let table = |text: &str| text.lines().filter(|line| line.starts_with("rope/")).count();
    assert_eq!(table(&again), table(&stdout));

    let (code, stdout, stderr) = kernel_check(None, dir.path(), "rope --arch sm_1");
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.contains("kernel source `rope` does not compile for sm_1:"), "{stderr}");
}

#[test]
fn unknown_sources_are_refused_with_all_names() {
    let dir = tempfile::tempdir().unwrap();
    let (code, _, stderr) = kernel_check(None, dir.path(), "rpoe");
    assert_eq!(code, 2);
    let expected = "error: there is no kernel source `rpoe`; there are: ";
    let names = stderr.strip_prefix(expected).unwrap_or_else(|| panic!("{stderr}"));
    for part in ["rope", "attention_forward_64", "map_backward_"] {
        assert!(names.split(' ').any(|name| name.starts_with(part)), "{names}");
    }
}

//! Stubs of the vendor's libraries, built by the C compiler.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the library `file` from a C source, with additional compiler options.
fn make(folder: &Path, file: &str, source: &str, options: &[&str]) -> PathBuf {
    let path = folder.join(file);
    let text = path.with_extension("c");
    std::fs::write(&text, source).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O2", "-w", "-o"]).arg(&path).arg(&text).args(options);
    let status = cc.status().expect("there is a C compiler, `cc`, which linking Rust needs too");
    assert!(status.success(), "the C compiler makes {file}");
    path
}

/// Builds all libraries that a driver needs. The cuBLASLt stub reports its durations to the driver's stub.
pub fn make_all(folder: &Path, options: &[&str]) -> PathBuf {
    let cuda = make(folder, "libcuda.so.1", include_str!("stubs/cuda.c"), options);
    make(folder, "libnvrtc.so.13", include_str!("stubs/nvrtc.c"), &[]);
    let cuda = cuda.display().to_string();
    make(folder, "libcublasLt.so.13", include_str!("stubs/cublaslt.c"), &[&cuda])
}

//! Libraries in C that stand in for a GPU's, compiled when a test needs them.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a C file of the fixtures as the shared library `soname` and loads it for good: from then on the loader
/// finds it by that name.
pub fn load(source: &str, soname: &str) -> Result<(), String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let object = folder.join(format!("{}-{soname}", std::process::id()));
    let compiled = compile(source, soname, &object);
    let loaded = compiled.and_then(|()| open(&object));
    // A loaded library stays without its file.
    let _ = std::fs::remove_file(&object);
    loaded
}

fn compile(source: &str, soname: &str, object: &Path) -> Result<(), String> {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(source);
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let output = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-pthread"])
        .arg(format!("-Wl,-soname,{soname}"))
        .arg("-o")
        .args([object, &source])
        .output()
        .map_err(|error| format!("the C compiler `{compiler}` does not start: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{compiler}: {said}")) }
}

fn open(object: &Path) -> Result<(), String> {
    let path = CString::new(object.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: a library of ours, which does nothing when it is loaded.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if library.is_null() { Err(format!("{} does not load", object.display())) } else { Ok(()) }
}

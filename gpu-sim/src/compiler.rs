//! Compiles kernel sources to shared libraries with the host's C++ compiler, and caches them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, OnceLock};

use meshwright_cuda::{COMMON, DriverError, KernelSource};
use xxhash_rust::xxh3::xxh3_128;

use crate::lock;

/// Headers that emulate CUDA on the host, in the order of inclusion.
const HEADERS: [(&str, &str); 5] = [
    ("types.hpp", include_str!("host/types.hpp")),
    ("block.hpp", include_str!("host/block.hpp")),
    ("sync.hpp", include_str!("host/sync.hpp")),
    ("math.hpp", include_str!("host/math.hpp")),
    ("tensor.hpp", include_str!("host/tensor.hpp")),
];

/// Definitions for these headers, which are the same for all kernels: compiled once, and linked to each library.
const SIMULATOR: [(&str, &str); 6] = [
    ("fiber.cpp", include_str!("host/simulator/fiber.cpp")),
    ("block.cpp", include_str!("host/simulator/block.cpp")),
    ("races.cpp", include_str!("host/simulator/races.cpp")),
    ("checks.cpp", include_str!("host/simulator/checks.cpp")),
    ("sync.cpp", include_str!("host/simulator/sync.cpp")),
    ("tensor.cpp", include_str!("host/simulator/tensor.cpp")),
];

/// Flags for all sources.
const COMMON_FLAGS: [&str; 4] = ["-std=c++17", "-fPIC", "-fno-exceptions", "-ffp-contract=off"];

/// Optimized for the time of tests.
const SIMULATOR_FLAGS: [&str; 2] = ["-O2", "-fvisibility=hidden"];

/// Kernels have checks of every access, and are optimized for the time to compile.
const KERNEL_FLAGS: [&str; 5] = [
    "-O1",
    "-fno-strict-aliasing",
    "-fsanitize=thread",
    "-fsanitize=alignment,bounds,shift-exponent",
    "-Wno-attributes",
];

/// Prefix of every kernel's name after macro expansion.
const PREFIX: &str = "meshwright_kernel_";

/// The compiler and its version.
struct Compiler {
    program: OsString,
    version: String,
}

/// Returns the shared library of `source`, compiled unless it is cached.
pub(crate) fn library(source: &KernelSource) -> Result<PathBuf, DriverError> {
    let compiler = compiler()?;
    compiler.library(source).map_err(|log| DriverError::Compile {
        source_name: source.name.to_string(),
        architecture: format!("the host, by {}", compiler.version),
        log,
    })
}

impl Compiler {
    fn library(&self, source: &KernelSource) -> Result<PathBuf, String> {
        let text = with_headers(source);
        let key = self.key(&[&text, &simulator()]);
        cached(key, "so", |library| {
            let simulator = self.simulator()?;
            let files =
                Files(["cpp", "ii", "o"].map(|extension| library.with_extension(extension)));
            let [written, expanded, object] = &files.0;
            write(written, &text)?;
            self.run(|command| {
                command
                    .args(COMMON_FLAGS)
                    .args(["-E", "-x", "c++"])
                    .arg(written)
                    .arg("-o")
                    .arg(expanded)
            })?;
            let mut text =
                fs::read_to_string(expanded).map_err(|error| on_disk(expanded, &error))?;
            let kernels = kernels(&text);
            text.push_str(&entry_points(&kernels));
            write(expanded, &text)?;
            self.run(|command| {
                let input = ["-c", "-x", "c++-cpp-output"];
                command
                    .args(COMMON_FLAGS)
                    .args(KERNEL_FLAGS)
                    .args(input)
                    .arg(expanded)
                    .arg("-o")
                    .arg(object)
            })?;
            // A separate step, because a compiler that links with the sanitizer flags would add its own run-time
            // library; and without the library of C++, whose search takes longer than the rest of the step.
            self.run(|command| {
                let objects = [object.as_path(), &simulator];
                command
                    .args(["-shared", "-nodefaultlibs"])
                    .args(objects)
                    .args(["-lm", "-lc", "-o"])
                    .arg(library)
            })
        })
    }

    /// Returns the object file of the simulator.
    fn simulator(&self) -> Result<PathBuf, String> {
        let text = simulator();
        cached(self.key(&[&text]), "o", |object| {
            let files = Files([object.with_extension("cpp")]);
            let [written] = &files.0;
            write(written, &text)?;
            self.run(|command| {
                command
                    .args(COMMON_FLAGS)
                    .args(SIMULATOR_FLAGS)
                    .arg("-c")
                    .arg(written)
                    .arg("-o")
                    .arg(object)
            })
        })
    }

    /// Returns the cache key of the compilation of `texts`.
    fn key(&self, texts: &[&str]) -> u128 {
        let flags = [&COMMON_FLAGS[..], &SIMULATOR_FLAGS, &KERNEL_FLAGS].concat();
        xxh3_128([&[self.version.as_str()], texts, &flags].concat().join("\0").as_bytes())
    }

    /// Runs the compiler; its output is the error.
    fn run(&self, arguments: impl FnOnce(&mut Command) -> &mut Command) -> Result<(), String> {
        match arguments(&mut Command::new(&self.program)).output() {
            Err(error) => Err(format!("{}: {error}", self.program.to_string_lossy())),
            Ok(Output { status, stderr, .. }) if !status.success() => {
                Err(String::from_utf8_lossy(&stderr).into_owned())
            }
            Ok(_) => Ok(()),
        }
    }
}

/// Returns the path of a cached file. If the file does not exist, `make` writes it to a temporary path, which is then
/// renamed.
///
/// A thread that requests a file waits while another thread makes it.
fn cached(
    key: u128,
    extension: &str,
    make: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    static LOCKS: Mutex<BTreeMap<u128, Arc<Mutex<()>>>> = Mutex::new(BTreeMap::new());
    let folder = folder();
    let path = folder.join(format!("{key:032x}.{extension}"));
    let of_file = Arc::clone(lock(&LOCKS).entry(key).or_default());
    let _one = lock(&of_file);
    if path.exists() {
        return Ok(path);
    }
    fs::create_dir_all(&folder).map_err(|error| on_disk(&folder, &error))?;
    // Other processes may make the same file; a rename publishes it when it is complete.
    let stem = folder.join(format!("{key:032x}-{}", std::process::id()));
    let made = Files([stem.with_extension(extension)]);
    make(&made.0[0])?;
    fs::rename(&made.0[0], &path).map_err(|error| on_disk(&path, &error))?;
    Ok(path)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| on_disk(path, &error))
}

fn on_disk(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Temporary files, removed on drop.
struct Files<const N: usize>([PathBuf; N]);

impl<const N: usize> Drop for Files<N> {
    fn drop(&mut self) {
        for file in &self.0 {
            // A complete file has been renamed.
            let _ = fs::remove_file(file);
        }
    }
}

/// Returns headers, common header and source, with line directives for messages.
///
/// Kernels are in an anonymous namespace: functions are private to the library, and local variables, including those in
/// shared memory, can be assigned to a section.
fn with_headers(source: &KernelSource) -> String {
    let mut text = joined(&HEADERS);
    text.push_str(&format!("namespace {{\n#line 1 \"device.cuh\"\n{COMMON}\n"));
    text.push_str(&format!("#line 1 \"{}.cu\"\n{}\n}}  // namespace\n", source.name, source.text));
    text
}

/// Returns the source of the simulator.
fn simulator() -> String {
    joined(&HEADERS) + &joined(&SIMULATOR)
}

fn joined(files: &[(&str, &str)]) -> String {
    files.iter().map(|(name, text)| format!("#line 1 \"{name}\"\n{text}\n")).collect()
}

/// Returns the names of the kernels in a preprocessed text.
fn kernels(text: &str) -> BTreeSet<&str> {
    let part_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(PREFIX)
        .map(|(at, _)| {
            let rest = &text[at + PREFIX.len()..];
            &rest[..rest.find(|c| !part_of_name(c)).unwrap_or(rest.len())]
        })
        .collect()
}

/// Returns, for each kernel, a function that reports the sizes of its parameters and one that launches it; and a list
/// of all kernels.
fn entry_points(kernels: &BTreeSet<&str>) -> String {
    let mut text = String::from("\n# 1 \"entry points\"\n");
    for name in kernels {
        text.push_str(&format!(
            "extern \"C\" const uint32_t* meshwright_parameters_{name}() {{\n\
             \x20   return meshwright_host::parameter_sizes({PREFIX}{name});\n\
             }}\n\
             extern \"C\" __attribute__((visibility(\"default\")))\n\
             int meshwright_launch_{name}(meshwright_host::Launch* launch, const void* const* args) {{\n\
             \x20   return meshwright_host::run_grid(\n\
             \x20       launch, [](const void* const* args) {{ meshwright_host::call({PREFIX}{name}, args); }}, \
             args);\n\
             }}\n"
        ));
    }
    let names: Vec<&str> = kernels.iter().copied().collect();
    text.push_str(&format!(
        "extern \"C\" const char meshwright_kernels[] = \"{}\";\n",
        names.join(", ")
    ));
    text
}

/// Returns the cache folder: in Cargo's target folder, or else in the temporary folder.
fn folder() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let target = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
    target.map_or_else(std::env::temp_dir, Path::to_path_buf).join("gpu-sim")
}

fn compiler() -> Result<&'static Compiler, DriverError> {
    static COMPILER: OnceLock<Option<Compiler>> = OnceLock::new();
    COMPILER.get_or_init(find_compiler).as_ref().ok_or_else(|| {
        DriverError::Library(
            "the simulated device needs a C++17 compiler: install g++ or clang++, or name one in CXX".to_string(),
        )
    })
}

fn find_compiler() -> Option<Compiler> {
    let wanted = std::env::var_os("CXX").filter(|name| !name.is_empty());
    let candidates = match wanted {
        Some(program) => vec![program],
        None => ["c++", "g++", "clang++"].map(OsString::from).to_vec(),
    };
    candidates.into_iter().find_map(|program| {
        let output = Command::new(&program).arg("--version").output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text.lines().next()?.to_string();
        output.status.success().then_some(Compiler { program, version })
    })
}

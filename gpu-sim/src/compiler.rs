//! Compiles kernel sources to shared libraries with the host's C++ compiler, and caches them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use meshwright::backend::cuda::{COMMON, DriverError, KernelSource};
use xxhash_rust::xxh3::xxh3_128;

/// Headers that emulate CUDA on the host, in the order of inclusion.
const HOST: [(&str, &str); 8] = [
    ("types.hpp", include_str!("host/types.hpp")),
    ("fiber.hpp", include_str!("host/fiber.hpp")),
    ("block.hpp", include_str!("host/block.hpp")),
    ("races.hpp", include_str!("host/races.hpp")),
    ("checks.hpp", include_str!("host/checks.hpp")),
    ("sync.hpp", include_str!("host/sync.hpp")),
    ("math.hpp", include_str!("host/math.hpp")),
    ("tensor.hpp", include_str!("host/tensor.hpp")),
];

const FLAGS: [&str; 8] = [
    "-std=c++17",
    "-O1",
    "-fPIC",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
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
    let text = complete(source);
    let flags = FLAGS.join(" ");
    let key =
        xxh3_128([&text, &compiler.version, &flags].map(String::as_str).join("\0").as_bytes());
    let folder = folder();
    let path = folder.join(format!("{key:032x}.so"));
    if path.exists() {
        return Ok(path);
    }
    let failed = |log: String| DriverError::Compile {
        source_name: source.name.to_string(),
        architecture: format!("the host, by {}", compiler.version),
        log,
    };
    let on_disk = |error: io::Error| failed(format!("{}: {error}", folder.display()));
    fs::create_dir_all(&folder).map_err(on_disk)?;
    // Concurrent compilations of one source use files of their own; a rename publishes the complete library.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let own = COUNT.fetch_add(1, Ordering::Relaxed);
    let stem = folder.join(format!("{key:032x}-{}-{own}", std::process::id()));
    let files = Files(["cpp", "ii", "o", "tmp"].map(|extension| stem.with_extension(extension)));
    let [written, expanded, object, made] = &files.0;
    fs::write(written, text).map_err(on_disk)?;
    let mut preprocess = Command::new(&compiler.program);
    preprocess.args(["-std=c++17", "-E", "-x", "c++"]).arg(written).arg("-o").arg(expanded);
    run(preprocess).map_err(&failed)?;
    let mut text = fs::read_to_string(expanded).map_err(on_disk)?;
    let kernels = kernels(&text);
    text.push_str(&entry_points(&kernels));
    fs::write(expanded, text).map_err(on_disk)?;
    let mut compile = Command::new(&compiler.program);
    compile.args(FLAGS).args(["-c", "-x", "c++-cpp-output"]).arg(expanded).arg("-o").arg(object);
    run(compile).map_err(&failed)?;
    // A separate step, because a compiler that links with the sanitizer flags would add its own run-time library.
    let mut link = Command::new(&compiler.program);
    link.arg("-shared").arg(object).arg("-o").arg(made);
    run(link).map_err(&failed)?;
    fs::rename(made, &path).map_err(on_disk)?;
    Ok(path)
}

/// Temporary files, removed on drop.
struct Files([PathBuf; 4]);

impl Drop for Files {
    fn drop(&mut self) {
        for file in &self.0 {
            // The last file was renamed unless something failed.
            let _ = fs::remove_file(file);
        }
    }
}

/// Returns host headers, common header and source, with line directives for messages.
///
/// Kernels are in an anonymous namespace: functions are private to the library, and local variables, including those in
/// shared memory, can be assigned to a section.
fn complete(source: &KernelSource) -> String {
    let mut text = String::new();
    for (name, part) in HOST {
        text.push_str(&format!("#line 1 \"{name}\"\n{part}\n"));
    }
    text.push_str(&format!("namespace {{\n#line 1 \"device.cuh\"\n{COMMON}\n"));
    text.push_str(&format!("#line 1 \"{}.cu\"\n{}\n}}  // namespace\n", source.name, source.text));
    text
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
             extern \"C\" int meshwright_launch_{name}(meshwright_host::Launch* launch, const void* const* args) {{\n\
             \x20   return meshwright_host::run_grid(\n\
             \x20       launch, [](const void* const* args) {{ meshwright_host::call({PREFIX}{name}, args); }}, args);\n\
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

/// Runs a compiler; its output is the error.
fn run(mut command: Command) -> Result<(), String> {
    match command.output() {
        Err(error) => Err(format!("{}: {error}", command.get_program().to_string_lossy())),
        Ok(Output { status, stderr, .. }) if !status.success() => {
            Err(String::from_utf8_lossy(&stderr).into_owned())
        }
        Ok(_) => Ok(()),
    }
}

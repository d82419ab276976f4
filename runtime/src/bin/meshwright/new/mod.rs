//! The subcommand `new`: writes a project with a model, a trainer and a test of its meshes.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command};

use super::failure::Failure;

/// The files of a project, and their texts with placeholders.
const FILES: [(&str, &str); 10] = [
    ("Cargo.toml", include_str!("project/Cargo.toml.txt")),
    ("rust-toolchain.toml", include_str!("project/rust-toolchain.toml.txt")),
    ("README.md", include_str!("project/README.md.txt")),
    (".gitignore", include_str!("project/gitignore.txt")),
    (".github/workflows/ci.yml", include_str!("project/github/ci.yml.txt")),
    ("src/lib.rs", include_str!("project/src/lib.rs.txt")),
    ("src/model.rs", include_str!("project/src/model.rs.txt")),
    ("src/config.rs", include_str!("project/src/config.rs.txt")),
    ("src/main.rs", include_str!("project/src/main.rs.txt")),
    ("tests/meshes.rs", include_str!("project/tests/meshes.rs.txt")),
];

/// Names that cargo or the project itself cannot use for a package.
const TAKEN: [&str; 14] = [
    "meshwright",
    "test",
    "core",
    "std",
    "alloc",
    "proc_macro",
    "build",
    "deps",
    "examples",
    "incremental",
    "serde_json",
    "crate",
    "self",
    "super",
];

/// The note on a dependency that other machines do not have.
const PATH_NOTE: &str = "Cargo.toml names a checkout on this machine: other machines, and CI, need one at that path, \
                         or another dependency\n";

pub fn command() -> Command {
    Command::new("new")
        .about("Write a project of your own: a model, a trainer, a test of its meshes, and CI")
        .arg(Arg::new("dir").value_name("DIR").required(true).help("Its folder, whose name is that of the package"))
        .arg(Arg::new("path").long("path").value_name("CHECKOUT").help(
            "Depend on this checkout of Meshwright [default: the checkout that this program was built in, else the \
             published crate]",
        ))
}

/// Runs the subcommand. Returns the text to print.
pub fn run_command(matches: &ArgMatches) -> Result<(String, bool), Failure> {
    let dir = PathBuf::from(matches.get_one::<String>("dir").expect("it is required"));
    let name = package_name(&dir)?;
    let dependency = match matches.get_one::<String>("path") {
        Some(checkout) => dependency_on(Path::new(checkout))?,
        None => match built_in() {
            Some(checkout) => dependency_on(&checkout)?,
            None => format!("\"{}\"", env!("CARGO_PKG_VERSION")),
        },
    };
    check_empty(&dir)?;
    let module = name.replace('-', "_");
    for (path, text) in FILES {
        let text = text
            .replace("{{name}}", &name)
            .replace("{{crate}}", &module)
            .replace("{{dependency}}", &dependency);
        write(&dir.join(path), &text)?;
    }
    let text = format!(
        "{} is a package with a model (src/model.rs), its sizes (src/config.rs), a trainer (src/main.rs) and a test of \
         its meshes. Next:\n  cd {0}\n  cargo run --release -- --steps 100 --mesh dp=2,tp=2\n  cargo test\n{1}",
        dir.display(),
        if dependency.contains("path") { PATH_NOTE } else { "" }
    );
    Ok((text, true))
}

/// Returns the name of the package in `dir`.
fn package_name(dir: &Path) -> Result<String, Failure> {
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    let module = name.replace('-', "_");
    // A keyword is no name of a crate.
    let is_keyword = [
        "fn", "mod", "use", "type", "struct", "trait", "impl", "match", "loop", "move", "async",
        "dyn",
    ]
    .contains(&name);
    if begins && name.chars().all(is_word) && !TAKEN.contains(&module.as_str()) && !is_keyword {
        return Ok(name.to_owned());
    }
    Err(format!(
        "`{}` does not end in the name of a package: letters a to z, digits, `-` and `_`, such as my-model, and no \
         name that Rust or Meshwright uses",
        dir.display()
    )
    .into())
}

/// Returns the checkout that this program was built in, if it is there.
fn built_in() -> Option<PathBuf> {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    is_checkout(checkout).then(|| checkout.to_owned())
}

fn is_checkout(folder: &Path) -> bool {
    folder.join("runtime/Cargo.toml").is_file() && folder.join("Cargo.toml").is_file()
}

/// Returns the dependency on the library in a checkout, as TOML.
fn dependency_on(checkout: &Path) -> Result<String, Failure> {
    if !is_checkout(checkout) {
        return Err(format!("--path: {} is no checkout of Meshwright", checkout.display()).into());
    }
    let absolute = checkout.canonicalize().map_err(failed("read", checkout))?;
    let path = absolute.join("runtime");
    match path.to_str() {
        Some(path) if !path.contains('\'') && !path.contains('\n') => {
            Ok(format!("{{ path = '{path}' }}"))
        }
        _ => Err(format!("--path: {} cannot be written in TOML", path.display()).into()),
    }
}

/// Checks that nothing in `dir` would be lost.
fn check_empty(dir: &Path) -> Result<(), Failure> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries.count(),
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => return Err(failed("read", dir)(error)),
    };
    if entries > 0 {
        return Err(format!("{} is not empty; name a new folder", dir.display()).into());
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed("create", folder))?;
    }
    fs::write(path, text).map_err(failed("write", path))
}

fn failed(verb: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    move |error| Failure::new(format!("cannot {verb} {}: {error}", path.display()), &error)
}

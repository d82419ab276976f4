//! Writes one module per page, documented by the page, so that rustdoc compiles and runs its code blocks.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let mut pages = vec![root.join("../README.md")];
    collect_pages(&root.join("src"), &mut pages)?;
    let mut modules = String::new();
    for page in &pages {
        println!("cargo::rerun-if-changed={}", page.display());
        let name: String = page
            .strip_prefix(&root)
            .unwrap_or(page)
            .with_extension("")
            .to_string_lossy()
            .chars()
            .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' })
            .collect::<String>()
            .to_lowercase();
        let path = page.display().to_string();
        writeln!(modules, "#[doc = include_str!({path:?})]\nmod page_{name} {{}}")
            .expect("a string grows");
    }
    println!("cargo::rerun-if-changed={}", root.join("src").display());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("pages.rs"), modules)
}

fn collect_pages(folder: &Path, pages: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            println!("cargo::rerun-if-changed={}", path.display());
            collect_pages(&path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    Ok(())
}

//! Writes one module per page, documented by the page, so that rustdoc compiles and runs its code blocks.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let source = root.join("src");
    let mut pages = vec![root.with_file_name("README.md")];
    collect_pages(&source, &mut pages)?;
    let modules: String = pages.iter().map(|page| module(&source, page)).collect();
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("pages.rs"), modules)
}

/// Adds the pages in `folder`, and in those inside it.
fn collect_pages(folder: &Path, pages: &mut Vec<PathBuf>) -> io::Result<()> {
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect_pages(&path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    Ok(())
}

/// `contributing/working.md` becomes `mod contributing_working {}`.
fn module(source: &Path, page: &Path) -> String {
    println!("cargo::rerun-if-changed={}", page.display());
    let inside = page.strip_prefix(source).map(Path::to_path_buf);
    let name = inside.unwrap_or_else(|_| PathBuf::from(page.file_name().unwrap_or_default()));
    let name = name.with_extension("").display().to_string().to_lowercase();
    let name = name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
    format!("#[doc = include_str!({:?})]\nmod {name} {{}}\n", page.display().to_string())
}

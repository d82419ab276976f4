//! The text that is on every machine: the project's own book.

use std::path::{Path, PathBuf};

use super::DataError;

/// The `.md` and `.rs` files under `roots` (files, or folders searched through), concatenated.
///
/// Roots keep their order and the files of a folder are sorted by path, so the text is the same on every machine
/// with the same files. Hidden folders and folders named `target` are left out, and so are roots that do not exist.
///
/// # Errors
/// A file or folder that cannot be read, or no text at all.
pub fn read_corpus(roots: &[PathBuf]) -> Result<Vec<u8>, DataError> {
    let mut files = Vec::new();
    for root in roots.iter().filter(|root| root.exists()) {
        collect(root, &mut files)?;
    }
    let mut text = Vec::new();
    for path in files {
        text.extend(std::fs::read(&path).map_err(|source| DataError::Io { path, source })?);
    }
    if text.is_empty() {
        let roots = roots.iter().map(|root| root.display().to_string()).collect();
        return Err(DataError::NoText { roots });
    }
    Ok(text)
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), DataError> {
    if !path.is_dir() {
        if path.extension().is_some_and(|ext| ext == "md" || ext == "rs") {
            files.push(path.to_owned());
        }
        return Ok(());
    }
    let io = |source| DataError::Io { path: path.to_owned(), source };
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(path).map_err(io)? {
        entries.push(entry.map_err(io)?.path());
    }
    entries.sort();
    for entry in entries.iter().filter(|entry| !is_left_out(entry)) {
        collect(entry, files)?;
    }
    Ok(())
}

/// Returns true for hidden entries, build outputs, and symbolic links, which could form cycles.
fn is_left_out(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with('.') || name == "target" || path.is_symlink()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_concatenated_in_sorted_order() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("b/two.rs", "two "),
            ("b/a/one.md", "one "),
            ("b/z.txt", "no "),
            ("b/target/x.rs", "no "),
            ("b/.git/x.md", "no "),
            ("a.md", "last"),
        ] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let roots = ["b", "missing", "a.md"].map(|name| dir.path().join(name));
        assert_eq!(read_corpus(&roots).unwrap(), b"one two last");
        let text = read_corpus(&roots[1..2]).unwrap_err().to_string();
        assert!(text.contains("no .md or .rs file under") && text.contains("missing"), "{text}");
    }
}

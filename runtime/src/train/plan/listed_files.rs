//! The files of a source of data: named, in a folder, or by a glob.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::data::{Order, is_remote};

use super::list_problem::ListProblem;
use super::listed_objects::{expand_objects, is_beside_data};

/// A source of a list.
#[derive(Debug, PartialEq)]
pub struct ListedSource {
    /// The name in metrics and messages.
    pub name: String,
    /// The weight; 1 without weights.
    pub weight: f64,
    /// The order of its samples, if it is given.
    pub order: Option<Order>,
    /// The files, in order; at least one.
    pub files: Vec<PathBuf>,
}

/// Returns the files of a path: itself, those of a folder, or those that match a glob, in the order of their names.
pub fn expand(
    path: &Path,
    containers: &mut Vec<PathBuf>,
) -> std::result::Result<Vec<PathBuf>, ListProblem> {
    if path.as_os_str().is_empty() {
        return Err("an entry names no file".to_owned().into());
    }
    if is_remote(path) {
        return expand_objects(path);
    }
    if path.is_dir() {
        containers.push(path.to_owned());
        return Ok(files_of_folder(path)?);
    }
    let text = path.to_str().unwrap_or_default();
    if path.exists() || !text.contains(['*', '?', '[']) {
        return Ok(vec![path.to_owned()]);
    }
    containers.push(path.to_owned());
    let matches =
        glob::glob(text).map_err(|error| format!("{text} is not a valid glob: {error}"))?;
    let mut files = Vec::new();
    for found in matches {
        let found = found.map_err(|error| {
            format!("cannot read {}: {}", error.path().display(), error.error())
        })?;
        if !found.is_dir() && !is_left_out(&found) {
            files.push(found);
        }
    }
    if files.is_empty() {
        return Err(format!("no file matches {text}").into());
    }
    let folders: BTreeSet<PathBuf> =
        files.iter().filter_map(|file| Some(file.parent()?.to_owned())).collect();
    for folder in folders {
        refuse_other_names(&folder)?;
    }
    files.sort();
    Ok(files)
}

/// Refuses a folder with a file whose name is not UTF-8, which no glob matches.
fn refuse_other_names(folder: &Path) -> std::result::Result<(), String> {
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = std::fs::read_dir(here).into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name()).filter(|name| name.to_str().is_none());
    match names.next() {
        Some(name) => Err(format!(
            "the name of {} is not UTF-8, so no glob matches it; rename the file, or name the folder",
            here.join(name).display()
        )),
        None => Ok(()),
    }
}

/// Returns the files of data of a folder, without those of its folders.
fn files_of_folder(folder: &Path) -> std::result::Result<Vec<PathBuf>, String> {
    let unreadable = |error| format!("cannot read {}: {error}", folder.display());
    let (mut files, mut has_folders) = (Vec::new(), false);
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.is_dir() {
            has_folders = true;
        } else if !is_left_out(&path) {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        let (folder, inner) = (folder.display(), if has_folders { " but folders" } else { "" });
        return Err(format!(
            "{folder} holds no files{inner}; name a folder with files of data, or a glob such as {folder}/**/*.bin"
        ));
    }
    Ok(files)
}

fn is_left_out(path: &Path) -> bool {
    is_beside_data(path, Path::is_file)
}

/// Refuses a file that is named twice.
pub fn check_names(sources: &[ListedSource]) -> std::result::Result<(), String> {
    let mut known = BTreeSet::new();
    let files = sources.iter().flat_map(|source| &source.files);
    let real = |file: &PathBuf| {
        if is_remote(file) { Some(file.clone()) } else { file.canonicalize().ok() }
    };
    let mut real = files.filter_map(|file| Some((file, real(file)?)));
    match real.find(|(_, real)| !known.insert(real.clone())) {
        Some((file, _)) => Err(format!(
            "{} is named twice; name it once, with a larger weight if it is to be read more often",
            file.display()
        )),
        None => Ok(()),
    }
}

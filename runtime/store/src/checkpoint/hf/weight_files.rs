//! The files of weights of a folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::config_text::refuse_twice;
use super::file_names::{INDEX, WEIGHTS};
use super::other_content;
use crate::checkpoint::tensors::TensorFile;
use crate::checkpoint::{CheckpointError, files};

/// Files with their paths, and the index of the file of every tensor, sorted by name.
pub type WeightFiles = (Vec<(PathBuf, TensorFile)>, BTreeMap<String, usize>);

/// Opens the files of weights of a folder.
pub fn open_weights(folder: &Path) -> Result<WeightFiles, CheckpointError> {
    let (single, index) = (folder.join(WEIGHTS), folder.join(INDEX));
    let paths = if single.exists() {
        vec![single]
    } else if index.exists() {
        existing_files(&index)?
    } else {
        let reason = other_content::describe_folder(folder).unwrap_or_else(|| {
            format!(
                "the folder has neither {WEIGHTS} nor {INDEX}, and no weights in another known format"
            )
        });
        return Err(CheckpointError::settings(folder, reason));
    };
    let mut files = Vec::new();
    let mut file_of = BTreeMap::new();
    for path in paths {
        let file = TensorFile::open(&path)?;
        for name in file.names() {
            if let Some(first) = file_of.insert(name.clone(), files.len()) {
                let (first, _): &(PathBuf, TensorFile) = &files[first];
                let reason = format!("is also in {}", first.display());
                return Err(CheckpointError::tensor_error(&path, &name, reason));
            }
        }
        files.push((path, file));
    }
    Ok((files, file_of))
}

/// Returns the paths of the files of an index, which all exist.
fn existing_files(index: &Path) -> Result<Vec<PathBuf>, CheckpointError> {
    let names = files_of_index(index)?;
    let count = names.len();
    let paths = names.into_iter().map(|name| index.with_file_name(name));
    let (found, missing): (Vec<_>, Vec<_>) = paths.partition(|path| path.exists());
    let Some(first) = missing.first() else { return Ok(found) };
    let first = first.file_name().unwrap_or_default().display();
    let reason = format!(
        "the folder lacks {} of the {count} files that it names, such as {first}; download them too",
        missing.len()
    );
    Err(CheckpointError::settings(index, reason))
}

/// Returns the distinct file names of an index.
pub fn files_of_index(index: &Path) -> Result<Vec<String>, CheckpointError> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let text = files::read_text(index, files::MAX_JSON_BYTES)?;
    let parsed: Index = serde_json::from_slice(&text)
        .map_err(|error| CheckpointError::settings(index, format!("not an index: {error}")))?;
    refuse_twice(&text).map_err(|reason| CheckpointError::settings(index, reason))?;
    let mut names: Vec<String> = parsed.weight_map.into_values().collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        return Err(CheckpointError::settings(index, "the weight_map is empty"));
    }
    // A path to another folder is not allowed in an index.
    match names.iter().find(|name| Path::new(name).file_name() != Some(name.as_ref())) {
        Some(name) => {
            let reason = format!("`{name}` is not the name of a file of this folder");
            Err(CheckpointError::settings(index, reason))
        }
        None => Ok(names),
    }
}

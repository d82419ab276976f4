//! Folders that `save_to_disk` of the library `datasets` writes.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Listed;
use crate::data::{DataError, FileProblem};

/// The file that names the files of data.
const STATE: &str = "state.json";

/// The file of a folder of several splits, which names them.
const SPLITS: &str = "dataset_dict.json";

/// Returns the Arrow files of a folder, in order; `None` if it is no dataset.
///
/// # Errors
/// A folder of several splits, and a list of files that cannot be read or names no files.
pub fn data_files(folder: &Path, listed: &Listed) -> Result<Option<Vec<PathBuf>>, DataError> {
    let refuse = |file: &str, problem: String| {
        DataError::File(FileProblem { name: folder.join(file).display().to_string(), problem })
    };
    let has = |name: &str| listed.others.iter().any(|other| other == name);
    if has(SPLITS) {
        let first = listed.folders.first().map_or("train", String::as_str);
        let split = folder.join(first);
        let problem = format!(
            "the folder holds several splits; name one of them, such as {}",
            split.display()
        );
        return Err(refuse(SPLITS, problem));
    }
    if !has(STATE) {
        let arrow: Vec<_> = listed.others.iter().filter(|name| name.ends_with(".arrow")).collect();
        let paths = arrow.iter().map(|name| folder.join(name)).collect();
        return Ok((!arrow.is_empty()).then_some(paths));
    }
    let path = folder.join(STATE);
    let text = fs::read(&path).map_err(|source| DataError::Io { path, source })?;
    let state: Value = serde_json::from_slice(&text).map_err(|error| {
        refuse(STATE, format!("it is no JSON ({error}); save the dataset again"))
    })?;
    let files = state["_data_files"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names: Option<Vec<&str>> = files.iter().map(|file| file["filename"].as_str()).collect();
    match names {
        Some(names) if !names.is_empty() => {
            Ok(Some(names.into_iter().map(|name| folder.join(name)).collect()))
        }
        _ => {
            let problem =
                "it names no files of data (_data_files); save the dataset again by save_to_disk";
            Err(refuse(STATE, problem.to_owned()))
        }
    }
}

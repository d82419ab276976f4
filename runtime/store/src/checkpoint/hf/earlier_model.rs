//! The model that is in a folder before an export, which it replaces only if nothing else is lost.

use std::collections::BTreeMap;
use std::path::Path;

use super::HfFormat;
use super::file_names::{CONFIG, INDEX, WEIGHTS};
use crate::checkpoint::tensors::TensorFile;
use crate::checkpoint::{CheckpointError, files};

/// The name of this program in the files of an export.
pub const WRITER: &str = "meshwright";

/// Beginnings of the names of files with weights in other formats.
const OTHER_FORMATS: [&str; 5] =
    ["pytorch_model", "tf_model", "flax_model", "consolidated.", "adapter_"];

/// Checks that `folder` has no other model than the one that `format` was read from, or an earlier export with the same
/// tensors.
pub fn check_replaceable(folder: &Path, format: &HfFormat) -> Result<(), CheckpointError> {
    let is_same = |source: &Path| match (source.canonicalize(), folder.canonicalize()) {
        (Ok(source), Ok(folder)) => source == folder,
        _ => false,
    };
    if format.source.as_deref().is_some_and(is_same) {
        return Ok(());
    }
    let mut found = files::file_names(folder)?;
    found.retain(|name| is_of_model(name));
    found.sort();
    let Some(first) = found.first() else { return Ok(()) };
    let refuse = |whose: &str| {
        let reason = format!(
            "the folder has {whose} ({first}), which the export would replace; name another folder, or remove its files"
        );
        Err(CheckpointError::settings(folder, reason))
    };
    let mut weights = Vec::new();
    for name in found.iter().filter(|name| **name != CONFIG && **name != INDEX) {
        match TensorFile::open(&folder.join(name)) {
            Ok(file) if file.writer() == Some(WRITER) => weights.push(file),
            _ => return refuse("a model that this program has not written"),
        }
    }
    if weights.is_empty() {
        return refuse("a model that this program has not written");
    }
    let tensors = weights.iter().flat_map(|file| {
        file.names().into_iter().map(|name| {
            let shape = file.shape(&name).unwrap_or_default().to_vec();
            (name, shape)
        })
    });
    if tensors.collect::<BTreeMap<_, _>>() != format.tensors.iter().cloned().collect() {
        return refuse("a model of other sizes or another family");
    }
    Ok(())
}

/// Removes files of weights of an earlier model, which are none of `own`.
pub fn remove_weights(folder: &Path, own: &[String]) -> Result<(), CheckpointError> {
    for name in files::file_names(folder)? {
        let is_weights = name == WEIGHTS || name == INDEX || is_part(&name);
        if is_weights && !own.contains(&name) {
            files::remove_path(&folder.join(name))?;
        }
    }
    Ok(())
}

/// Returns true for the name of one of several files of weights: `model-00001-of-00003.safetensors`.
fn is_part(name: &str) -> bool {
    let middle = name.strip_prefix("model-").and_then(|name| name.strip_suffix(".safetensors"));
    let numbers = middle.and_then(|middle| middle.split_once("-of-"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    numbers.is_some_and(|(part, count)| is_number(part) && is_number(count))
}

/// Returns true for files that describe or hold a model, except for the temporary ones of an export that was killed.
fn is_of_model(name: &str) -> bool {
    let is_other = || OTHER_FORMATS.iter().any(|prefix| name.starts_with(prefix));
    let is_weights = [".safetensors", ".gguf"].iter().any(|suffix| name.ends_with(suffix));
    name == CONFIG || name == INDEX || !name.starts_with('.') && is_weights || is_other()
}

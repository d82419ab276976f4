//! The objects of a source of data: named, in a folder, or by a glob.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::data::{is_object, list_objects};

use super::list_problem::ListProblem;

/// Returns the objects of a URL: itself, those of a folder, or those that match a glob, in the order of their names.
pub fn expand_objects(path: &Path) -> std::result::Result<Vec<PathBuf>, ListProblem> {
    let text = path.to_str().unwrap_or_default();
    let (_, inside) = text.split_once("://").unwrap_or_default();
    // The root of a bucket is a folder.
    let may_be_object = inside.contains('/') && !inside.ends_with('/');
    if may_be_object {
        // Megatron names its two files without their extensions.
        for name in [text.to_owned(), format!("{text}.idx")] {
            if is_object(name.as_ref()).map_err(ListProblem::Unreadable)? {
                return Ok(vec![path.to_owned()]);
            }
        }
    }
    let glob = text.find(['*', '?', '[']);
    let folder = match glob {
        Some(first) => &text[..text[..first].rfind('/').unwrap_or(first)],
        // Without a bucket, which is refused.
        None if inside.starts_with('/') || inside.is_empty() => text,
        None => text.trim_end_matches('/'),
    };
    let is_deep = glob.is_some_and(|first| text[first..].contains('/'));
    let listed = list_objects(Path::new(folder), is_deep);
    let (names, has_folders) = listed.map_err(ListProblem::Unreadable)?;
    let known: BTreeSet<PathBuf> = names.into_iter().collect();
    let pattern = glob.map(|_| glob::Pattern::new(text)).transpose();
    let pattern = pattern.map_err(|error| format!("{text} is not a valid glob: {error}"))?;
    let mut options = glob::MatchOptions::new();
    options.require_literal_separator = true;
    let is_data = |name: &&PathBuf| {
        let is_matched = pattern.as_ref().is_none_or(|own| own.matches_path_with(name, options));
        is_matched && !is_beside_data(name, |other| known.contains(other))
    };
    let files: Vec<PathBuf> = known.iter().filter(is_data).cloned().collect();
    match pattern {
        _ if !files.is_empty() => Ok(files),
        Some(_) => Err(format!("no object matches {text}").into()),
        None if has_folders => Err(format!(
            "{text} holds no objects but folders; name a folder with files of data, or a glob such as \
             {folder}/**/*.bin"
        )
        .into()),
        None => Err(format!("there is no object {text}, and no folder with objects").into()),
    }
}

/// Returns true for files beside data: hidden ones, markers of other programs (`_SUCCESS`), indexes and records of
/// token files.
pub fn is_beside_data(path: &Path, is_file: impl Fn(&Path) -> bool) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let of_tokens = |ending: &str| {
        let tokens = path.with_extension(ending);
        tokens != *path && is_file(&tokens)
    };
    let ending = path.extension().and_then(|ending| ending.to_str());
    name.starts_with(['.', '_'])
        || (ending == Some("idx") && of_tokens("bin"))
        || (ending == Some("json") && of_tokens(""))
}

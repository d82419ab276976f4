//! Remains of uploads after failures, in a folder that no other run saves to.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use meshwright_remote::ObjectFolder;
use serde::Deserialize;

use crate::checkpoint::names;
use crate::checkpoint::tensors::hash_of;

/// The part of a manifest that names files.
#[derive(Deserialize)]
struct ListedFiles {
    files: Vec<ListedName>,
}

#[derive(Deserialize)]
struct ListedName {
    name: String,
}

/// Removes the objects of incomplete checkpoints, ends their uploads, and removes what checkpoints have of earlier
/// attempts. Objects of other names stay.
pub fn remove_leftovers(folder: &ObjectFolder) -> io::Result<()> {
    let mut steps: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut found = Vec::new();
    for (name, _) in folder.list()? {
        match name.split_once('/').map(|(step, inner)| (names::step_of(step), inner)) {
            Some((Some(step), inner)) => steps.entry(step).or_default().push(inner.to_owned()),
            Some(_) => {}
            None if names::is_temporary(&name) => found.push(name),
            None => {}
        }
    }
    for (step, inner) in steps {
        let is_complete = inner.iter().any(|name| name == names::MANIFEST);
        let kept = if is_complete { kept_of(folder, step, &inner) } else { Some(BTreeSet::new()) };
        // A manifest that cannot be read may be better later, or be repaired.
        let Some(kept) = kept else { continue };
        let left = inner.into_iter().filter(|name| !kept.contains(name));
        found.extend(left.map(|name| format!("{}/{name}", names::folder_name(step))));
    }
    remove_objects(folder, found.into_iter().filter(|name| is_of_run(name)))
}

/// Removes objects, and ends unfinished uploads among them.
pub fn remove_objects(
    folder: &ObjectFolder,
    found: impl IntoIterator<Item = String>,
) -> io::Result<()> {
    let (uploads, objects): (Vec<String>, Vec<String>) =
        found.into_iter().partition(|name| ObjectFolder::uploaded_name(name).is_some());
    for name in uploads.iter().filter_map(|name| ObjectFolder::uploaded_name(name)) {
        folder.end_upload(name)?;
    }
    folder.remove(objects)
}

/// Returns the names of a complete checkpoint; `None` if its manifest cannot be read.
fn kept_of(folder: &ObjectFolder, step: u64, found: &[String]) -> Option<BTreeSet<String>> {
    let tokens: BTreeSet<&str> = found.iter().filter_map(|name| names::token_of(name)).collect();
    let is_plain = |name: &String| names::is_rank_file(name) || is_of_manifest(name);
    // All files of an attempt have its token: most checkpoints need not be read.
    if tokens.len() <= 1 && found.iter().all(is_plain) {
        return Some(found.iter().cloned().collect());
    }
    let read = |name| folder.get(&format!("{}/{name}", names::folder_name(step)), u64::MAX).ok()?;
    let (manifest, hashes) = (read(names::MANIFEST)?.bytes, read(names::MANIFEST_HASH)?.bytes);
    let (hash, hashes) = (hash_of(&manifest), String::from_utf8_lossy(&hashes).into_owned());
    let ListedFiles { files } = serde_json::from_slice(&manifest).ok()?;
    if !hashes.lines().any(|own| own == hash) {
        return None;
    }
    let files = files.into_iter().map(|file| file.name);
    Some(files.chain([names::MANIFEST, names::MANIFEST_HASH].map(str::to_owned)).collect())
}

fn is_of_manifest(name: &str) -> bool {
    [names::MANIFEST, names::MANIFEST_HASH].contains(&name)
}

/// Returns true for names that runs give to objects.
fn is_of_run(name: &str) -> bool {
    let name = name.rsplit_once('/').map_or(name, |(_, name)| name);
    let stem = ObjectFolder::uploaded_name(name).unwrap_or(name);
    let file = stem.strip_suffix(".json").map(|stem| format!("{stem}.safetensors"));
    let is_rank = names::is_rank_file(stem) || file.is_some_and(|file| names::is_rank_file(&file));
    is_rank || is_of_manifest(name) || names::is_temporary(name)
}

//! The settings of fields, by names and ends of paths.

use std::collections::{BTreeMap, BTreeSet};

/// The settings of fields that the model has used.
#[derive(Default)]
pub struct UsedSettings {
    pub optional: BTreeSet<String>,
    pub counts: BTreeSet<String>,
    pub norms: BTreeSet<String>,
    pub dropouts: BTreeSet<String>,
    pub ropes: BTreeSet<String>,
    pub inits: BTreeSet<String>,
    pub kinds: BTreeSet<String>,
    /// Paths, without indices, of fields that are absent or have no elements: the fields inside them are unknown.
    pub unbuilt: BTreeSet<String>,
}

impl UsedSettings {
    /// Returns true if a name is that of a field inside a field that the model does not have: it begins with the name
    /// of that field, or with the end of its path. A container inside a container has the same name.
    pub fn is_inside_unbuilt(&self, name: &str) -> bool {
        let outer = name.match_indices('.').map(|(end, _)| &name[..end]);
        outer.chain([name]).any(|outer| self.unbuilt.iter().any(|path| ends_with(path, outer)))
    }
}

/// Paths without indices of fields that adapters concern.
#[derive(Default)]
pub struct AdapterFields {
    /// All linear layers.
    pub linear: BTreeSet<String>,
    /// Names of the targets that some of them have.
    pub used: BTreeSet<String>,
}

/// Returns true if a part of a path is the index of a layer or an element.
pub fn is_index(part: &str) -> bool {
    part.parse::<usize>().is_ok()
}

/// Returns a path without the indices of layers and elements.
pub fn without_indices(path: &str) -> String {
    let parts = path.split('.').filter(|part| !is_index(part));
    parts.collect::<Vec<_>>().join(".")
}

/// Returns true if the last parts of a path are the parts of `end`.
pub fn ends_with(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Returns the setting of the field at `path`: that of the longest name which ends the path.
pub fn setting_of<'a, T>(
    settings: &'a BTreeMap<String, T>,
    path: &str,
) -> Option<(&'a str, &'a T)> {
    let found = settings.iter().filter(|(name, _)| ends_with(path, name));
    found.max_by_key(|(name, _)| name.len()).map(|(name, value)| (name.as_str(), value))
}

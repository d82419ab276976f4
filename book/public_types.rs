//! Names of public types: one name, one type in each crate.

use std::collections::BTreeMap;
use std::path::Path;

use crate::{files, read, root};

/// Types that exist twice: one in builds with a feature, and one in builds without.
const ALTERNATIVES: [&str; 2] = ["FileTokenizer", "ParquetColumn"];

#[test]
fn public_types_have_names_of_their_own() {
    let repository = root().join("..");
    for source in ["runtime", "macros/src", "gpu-sim/src"] {
        let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for file in files(&repository.join(source), "rs") {
            let path = file.strip_prefix(&repository).unwrap();
            if !is_test(path) && !is_model(path) {
                for (name, line) in public_types(&read(&file)) {
                    names.entry(name).or_default().push(format!("{}:{line}", path.display()));
                }
            }
        }
        assert!(!names.is_empty(), "{source} has public types");
        for (name, places) in names {
            let is_unique = places.len() == 1 || ALTERNATIVES.contains(&&*name);
            assert!(is_unique, "`{name}` names several public types: {}", places.join(", "));
        }
    }
}

fn is_test(path: &Path) -> bool {
    let is_test_file =
        path.file_stem().is_some_and(|name| name.to_string_lossy().ends_with("tests"));
    is_test_file || path.iter().any(|part| part == "tests")
}

/// Returns true for a part of the model of a family: all families name their parts alike, such as `Block`.
fn is_model(path: &Path) -> bool {
    let is_config = ["config.rs", "keys.rs"].iter().any(|file| path.ends_with(file));
    path.starts_with("runtime/models/src") && !is_config
}

/// Returns the names of the public types that a source file declares outside of tests, with their lines.
fn public_types(text: &str) -> impl Iterator<Item = (String, usize)> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    code.lines().enumerate().filter_map(|(index, line)| {
        let item = line.trim_start().strip_prefix("pub ")?;
        let item = item.strip_prefix("unsafe ").unwrap_or(item);
        let (kind, rest) = item.split_once(' ')?;
        let is_type = ["struct", "enum", "union", "trait", "type"].contains(&kind);
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let name = &rest[..end];
        // A type under its own name in another module.
        let is_alias = kind == "type" && rest.ends_with(&format!("::{name};"));
        (is_type && end > 0 && !is_alias).then(|| (name.to_owned(), index + 1))
    })
}

#[test]
fn public_types_are_found() {
    let text = "pub struct A<T>(T);\n    pub unsafe trait B {\n        type Out;\n    }\npub(crate) enum C {}\npub \
                enum $name {}\npub fn d() {}\npub type F = m::F;\n#[cfg(test)]\nmod tests {\n    pub struct E;\n}\n";
    let found: Vec<(String, usize)> = public_types(text).collect();
    assert_eq!(found, [("A".to_owned(), 1), ("B".to_owned(), 2)]);
}

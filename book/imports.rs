//! Import cycles between the files of a crate, found in the `use` lines of the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::{files, read};

/// Path of a Rust module from the root of the crate: `["fsdp", "unit"]`.
type ModulePath = Vec<String>;

/// The files of a crate by module path, and the imports of each.
pub struct Imports {
    modules: BTreeMap<ModulePath, Vec<Import>>,
}

/// An imported item, and the name that it has in the importing file.
struct Import {
    path: Vec<String>,
    name: String,
}

impl Imports {
    /// Reads all files under the folder `source` of a crate, without tests and other crates in the folder: `roots` are
    /// the root folders of all crates.
    ///
    /// # Panics
    /// If a file imports all items of another one, which hides where they are defined.
    pub fn read_crate(source: &Path, roots: &[PathBuf]) -> Imports {
        let inner: Vec<&PathBuf> =
            roots.iter().filter(|root| *root != source && root.starts_with(source)).collect();
        let is_own = |file: &PathBuf| !inner.iter().any(|root| file.starts_with(root));
        let files = files(source, "rs").into_iter().filter(is_own);
        let files = files.map(|file| {
            let relative = file.strip_prefix(source).unwrap().with_extension("");
            let mut path: ModulePath =
                relative.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            path.pop_if(|last| ["mod", "lib", "main"].contains(&last.as_str()));
            (path, imports(&read(&file)))
        });
        let is_test = |path: &ModulePath| path.iter().any(|part| part == "tests");
        let modules = files.filter(|(path, _)| !is_test(path)).collect();
        let imports = Imports { modules };
        if let Some((module, path)) = imports.glob() {
            panic!("{module} imports all items of {path}, which hides where they are defined");
        }
        imports
    }

    /// Returns a cycle of files that import from each other, beyond parent and child, if there is one.
    pub fn cycle(&self) -> Option<Vec<String>> {
        let mut done = BTreeSet::new();
        self.modules.keys().find_map(|module| self.cycle_from(module, &mut Vec::new(), &mut done))
    }

    /// Returns a file of the module that imports all items of another one, and the path of that import.
    fn glob(&self) -> Option<(String, String)> {
        self.modules.iter().find_map(|(module, imports)| {
            let mut globs = imports.iter().filter(|import| import.name == "*");
            // The prelude is a list of names itself.
            let internal = globs.find(|import| {
                let path = &import.path[..import.path.len() - 1];
                !path.is_empty() && path != ["prelude"] && self.definition(module, path).is_some()
            })?;
            Some((module.join("::"), internal.path.join("::")))
        })
    }

    fn cycle_from(
        &self,
        module: &ModulePath,
        open: &mut Vec<ModulePath>,
        done: &mut BTreeSet<ModulePath>,
    ) -> Option<Vec<String>> {
        if let Some(start) = open.iter().position(|known| known == module) {
            let cycle = open[start..].iter().chain([module]);
            return Some(cycle.map(|module| module.join("::")).collect());
        }
        if !done.insert(module.clone()) {
            return None;
        }
        open.push(module.clone());
        let cycle = self
            .imported_modules(module)
            .iter()
            .find_map(|imported| self.cycle_from(imported, open, done));
        open.pop();
        cycle
    }

    /// Returns the files from which `module` imports, but for its parents and children.
    fn imported_modules(&self, module: &ModulePath) -> BTreeSet<ModulePath> {
        let imported =
            self.modules[module].iter().filter_map(|import| self.definition(module, &import.path));
        imported.filter(|other| !other.starts_with(module) && !module.starts_with(other)).collect()
    }

    /// Returns the file that defines the item at `path`, as `module` names it: re-exports are followed. `None` for
    /// items of other modules and other crates.
    fn definition(&self, module: &ModulePath, path: &[String]) -> Option<ModulePath> {
        let mut current = module.clone();
        let mut rest = path;
        match rest[0].as_str() {
            "crate" => current.clear(),
            "super" | "self" => {}
            first => {
                let child = [module.as_slice(), &[first.to_owned()]].concat();
                self.modules.get(&child)?;
            }
        }
        while let Some((first, after)) = rest.split_first() {
            let child = [current.as_slice(), std::slice::from_ref(first)].concat();
            match first.as_str() {
                "crate" | "self" => {}
                "super" => drop(current.pop()),
                _ if self.modules.contains_key(&child) => current = child,
                name => {
                    let imports = self.modules.get(&current)?;
                    let exported = imports.iter().find(|import| import.name == name);
                    return match exported {
                        Some(import) if current != *module => {
                            let path = [import.path.as_slice(), after].concat();
                            self.definition(&current, &path)
                        }
                        _ => Some(current),
                    };
                }
            }
            rest = after;
        }
        self.modules.contains_key(&current).then_some(current)
    }
}

/// Returns the imports of a source file, without the imports of its tests.
fn imports(text: &str) -> Vec<Import> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let code: Vec<&str> =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let mut found = Vec::new();
    for (start, _) in code.match_indices("use ") {
        let before = code[..start].trim_end_matches(|c| c != '\n');
        let is_statement = ["", "pub ", "pub(crate) ", "pub(super) "]
            .iter()
            .any(|visibility| code[before.len()..start].trim_start() == *visibility)
            || code[before.len()..start].starts_with("pub(in ");
        if let (true, Some((tree, _))) = (is_statement, code[start + 4..].split_once(';')) {
            let tree: String = tree.split_whitespace().collect::<Vec<_>>().join(" ");
            add_use_tree(&[], &tree, &mut found);
        }
    }
    // Paths in the code itself.
    for prefix in ["crate::", "super::"] {
        for (start, _) in code.match_indices(prefix) {
            let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
            let before = code[..start].chars().next_back().unwrap_or(' ');
            let len = code[start..].find(|c| !is_path(c)).unwrap_or(code.len() - start);
            let path = code[start..start + len].trim_end_matches(':');
            let is_visibility = code[..start].ends_with("(in ");
            // `$crate::` is a path for the crates that call a macro.
            if !is_path(before) && before != '$' && !is_visibility {
                add_use_tree(&[], path, &mut found);
            }
        }
    }
    found
}

/// Adds the imports of a `use` tree such as `super::unit::{Unit, values as v}`.
fn add_use_tree(prefix: &[&str], tree: &str, found: &mut Vec<Import>) {
    let tree = tree.trim();
    let Some((head, group)) = tree.split_once('{') else {
        let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
        let path: Vec<&str> = prefix
            .iter()
            .copied()
            .chain(path.split("::"))
            .filter(|part| !part.is_empty())
            .collect();
        let last = path.last().copied().unwrap_or_default();
        let name = if alias.is_empty() { last } else { alias };
        let path: Vec<String> = path.iter().map(|part| (*part).to_owned()).collect();
        if !path.is_empty() {
            found.push(Import { path, name: name.to_owned() });
        }
        return;
    };
    let prefix: Vec<&str> =
        prefix.iter().copied().chain(head.split("::")).filter(|part| !part.is_empty()).collect();
    let group = group.strip_suffix('}').unwrap_or(group);
    let (mut depth, mut start) = (0usize, 0);
    for (index, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => match depth.checked_sub(1) {
                Some(outer) => depth = outer,
                // A text that only begins like an import, as a line of a string does.
                None => return,
            },
            ',' if depth == 0 => {
                add_use_tree(&prefix, &group[start..index], found);
                start = index + 1;
            }
            _ => {}
        }
    }
    add_use_tree(&prefix, &group[start..], found);
}

/// Every kind of import is followed to the file that defines the item.
#[test]
fn cycles_are_found_through_re_exports() {
    let imports_of = |files: &[(&str, &str)]| Imports {
        modules: files
            .iter()
            .map(|(path, text)| (path.split("::").map(str::to_owned).collect(), imports(text)))
            .collect(),
    };
    let root = ("room", "mod a;\nmod b;\npub use a::A;\npub(crate) use b::{B, C as D};\n");
    let cycle = |a: &str, b: &str| imports_of(&[root, ("room::a", a), ("room::b", b)]).cycle();
    assert_eq!(cycle("use super::D;\n", "use crate::other::A;\n"), None);
    assert_eq!(cycle("use super::B;\n", "// use super::A;\n"), None);
    assert!(cycle("use super::D;\n", "use super::{A};\n").is_some());
    assert!(cycle("use super::b::B;\n", "use crate::room::A;\n").is_some());
    assert!(cycle("use super::B;\n", "fn f() -> super::a::A {}\n").is_some());
    let tests = "#[cfg(test)]\nmod tests {\n    use super::super::B;\n}\n";
    assert_eq!(cycle(tests, "use super::A;\n"), None);
    // Imports of all items hide cycles; those from other crates and enums do not.
    let glob = |text: &str| imports_of(&[root, ("room::a", text), ("room::b", "")]).glob();
    assert_eq!(glob("use other::*;\nuse Kind::*;\nuse super::B;\n"), None);
    assert!(glob("pub use super::b::*;\n").is_some());
    // Parent and child may import from each other.
    let child = ("room::a::child", "use super::{Parent, Other};\n");
    let parent = ("room::a", "mod child;\nuse child::Child;\nuse super::b::Other;\n");
    assert_eq!(imports_of(&[root, parent, child, ("room::b", "")]).cycle(), None);
}

//! Files of mixtures: a table for each source.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::data::{Order, is_remote};

use super::list_problem::ListProblem;
use super::listed_files::{ListedSource, check_names, expand};

/// A table of a mixture file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table with data and weight")]
struct SourceTable {
    data: Paths,
    weight: f64,
    #[serde(default)]
    order: Option<Order>,
}

/// A path, or several.
#[derive(Deserialize)]
#[serde(untagged, expecting = "`data` has to be a path, or a list of paths")]
enum Paths {
    One(String),
    Several(Vec<String>),
}

/// Reads the file of a mixture, and adds it and the folders that it names to `containers`.
///
/// # Errors
/// A file that cannot be read, other tables, and sources without files.
pub fn read_mixture(
    path: &Path,
    containers: &mut Vec<PathBuf>,
) -> std::result::Result<Vec<ListedSource>, ListProblem> {
    let shown = path.display();
    if is_remote(path) {
        return Err(format!(
            "{shown} is the file of a mixture, which is read from a disk; copy it"
        )
        .into());
    }
    let text =
        crate::os::read_text(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let tables: BTreeMap<String, SourceTable> = toml::from_str(&text).map_err(|error| {
        format!(
            "{shown} is no mixture of sources: {}\n  A source is a table such as [web] with data = \"web/*.bin\" and \
             weight = 0.7, and order = \"shuffled\" if it has another order than the run",
            error.to_string().trim_end().replace('\n', "\n  ")
        )
    })?;
    if tables.is_empty() {
        return Err(format!(
            "{shown} has no sources; give each a table: [web] with data and weight"
        )
        .into());
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    containers.push(path.to_owned());
    let mut sources = Vec::new();
    for (name, SourceTable { data, weight, order }) in tables {
        let paths = match data {
            Paths::One(path) => vec![path],
            Paths::Several(paths) => paths,
        };
        let mut files = Vec::new();
        for path in paths {
            files.extend(
                expand_entry(folder, &path, containers)
                    .map_err(|problem| problem.at(&format!("{shown}: [{name}]")))?,
            );
        }
        if files.is_empty() || name.trim().is_empty() {
            let what = if files.is_empty() { "files" } else { "name" };
            return Err(format!("{shown}: [{name}] has no {what}").into());
        }
        sources.push(ListedSource { name, weight, order, files });
    }
    check_names(&sources)?;
    Ok(sources)
}

/// Returns the files of an entry, relative to the folder of the mixture. A mixture is no source.
fn expand_entry(
    folder: &Path,
    entry: &str,
    containers: &mut Vec<PathBuf>,
) -> std::result::Result<Vec<PathBuf>, ListProblem> {
    if entry.is_empty() {
        return Err("`data` names no file".to_owned().into());
    }
    if is_remote(Path::new(entry)) {
        return expand(Path::new(entry), containers);
    }
    let files = expand(&folder.join(entry), containers)?;
    match files
        .iter()
        .find(|file| !file.exists() || file.extension().is_some_and(|end| end == "toml"))
    {
        Some(file) if file.exists() => {
            Err(format!("{} is a file of settings, and no data", file.display()).into())
        }
        Some(file) => Err(format!("there is no file {}", file.display()).into()),
        None => Ok(files),
    }
}

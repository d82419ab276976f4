//! The files that `--data` names: a file, a folder, a glob, a list of these, or a mixture of sources with weights.

use std::path::{Path, PathBuf};

use crate::data::is_remote;
use crate::train::{Error, Result};

use super::list_problem::ListProblem;
use super::listed_files::{ListedSource, check_names, expand};
use super::mixture_file::read_mixture;

/// The sources that `--data` or `--eval-data` names.
#[derive(Debug, Default)]
pub struct DataList {
    /// The sources, at least one.
    pub sources: Vec<ListedSource>,
    /// The folders, the globs and the file of a mixture from which the files follow.
    pub containers: Vec<PathBuf>,
    /// True if the sources have weights.
    pub is_mixture: bool,
}

impl DataList {
    /// Reads the value `text` of `flag`: a file of this name, or else a list of files, folders and globs, each with a
    /// `:weight` or none of them, or the file `NAME.toml` of a mixture.
    ///
    /// # Errors
    /// Weights of some entries only, folders and globs without files, and a mixture file that cannot be read. A file
    /// that is missing is found when it is opened.
    pub fn read(flag: &'static str, text: &Path) -> Result<DataList> {
        let refuse = |problem: String| Error::Input(format!("{flag}: {problem}"));
        // Checkpoints keep the list as text.
        let Some(list) = text.to_str() else {
            return Err(refuse(format!(
                "the name {} is not UTF-8; rename the file",
                text.display()
            )));
        };
        if text.extension().is_some_and(|ending| ending == "toml") {
            let mut containers = Vec::new();
            let sources =
                read_mixture(text, &mut containers).map_err(ListProblem::of_flag(flag))?;
            return Ok(DataList { sources, containers, is_mixture: true });
        }
        if text.is_file() || !(text.is_dir() || list.contains([',', ':', '*', '?', '['])) {
            return Ok(DataList::of_file(text));
        }
        let entries = if text.exists() { vec![list] } else { list.split(',').collect() };
        let entries: std::result::Result<Vec<_>, _> =
            entries.into_iter().map(|entry| split_weight(trimmed(entry))).collect();
        let entries = entries.map_err(refuse)?;
        let weights = entries.iter().filter(|(_, weight)| weight.is_some()).count();
        if weights > 0 && weights < entries.len() {
            let (without, _) = entries.iter().find(|(_, weight)| weight.is_none()).expect("one");
            return Err(refuse(format!(
                "{without} has no weight, but others have; give each one, as in {without}:0.5, or none, and the files \
                 follow one another"
            )));
        }
        let mut containers = Vec::new();
        let mut expand =
            |path| expand(Path::new(path), &mut containers).map_err(ListProblem::of_flag(flag));
        let sources = if weights == 0 {
            let mut files = Vec::new();
            for (path, _) in &entries {
                files.extend(expand(path)?);
            }
            let name =
                if files.len() == 1 { files[0].display().to_string() } else { list.to_owned() };
            vec![ListedSource { name, weight: 1.0, order: None, files }]
        } else {
            let names = source_names(entries.iter().map(|(path, _)| *path));
            let mut sources = Vec::new();
            for ((path, weight), name) in entries.iter().zip(names) {
                let (weight, files) = (weight.unwrap_or(1.0), expand(path)?);
                sources.push(ListedSource { name, weight, order: None, files });
            }
            sources
        };
        check_names(&sources).map_err(refuse)?;
        Ok(DataList { sources, containers, is_mixture: weights > 0 })
    }

    fn of_file(path: &Path) -> DataList {
        let (name, files) = (path.display().to_string(), vec![path.to_owned()]);
        let source = ListedSource { name, weight: 1.0, order: None, files };
        DataList { sources: vec![source], ..DataList::default() }
    }

    /// Returns a list without files of a folder that holds no files of tokens, such as one of images; `None` if the
    /// path is no folder.
    pub fn of_folder(path: &Path) -> Option<DataList> {
        let containers = vec![path.to_owned()];
        path.is_dir().then(|| DataList { containers, ..DataList::default() })
    }

    /// Returns the files of all sources.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.sources.iter().flat_map(|source| &source.files).map(PathBuf::as_path)
    }
}

/// Returns an entry without spaces around it, unless a file has this name.
fn trimmed(entry: &str) -> &str {
    if Path::new(entry).exists() { entry } else { entry.trim() }
}

/// Splits `PATH:WEIGHT`. A file of the whole name has no weight.
fn split_weight(entry: &str) -> std::result::Result<(&str, Option<f64>), String> {
    if entry.is_empty() {
        return Err("an entry of the list is empty; leave the comma out".to_owned());
    }
    if is_remote(Path::new(entry)) {
        // Names of objects may have colons.
        let weighted = entry
            .rsplit_once(':')
            .and_then(|(path, weight)| Some((path, Some(weight.trim().parse().ok()?))));
        return Ok(weighted.unwrap_or((entry, None)));
    }
    if let Some((scheme, _)) = entry.split_once("://") {
        return Err(format!(
            "{entry} is a URL ({scheme}), which is not read; download it first, and name the file"
        ));
    }
    match entry.rsplit_once(':') {
        Some(("", _)) => Err(format!("`{entry}` names no file; write its name before the weight")),
        Some((path, weight)) if !Path::new(entry).exists() => match weight.trim().parse::<f64>() {
            Ok(weight) => Ok((path, Some(weight))),
            Err(_) => {
                Err(format!("the weight `{weight}` of {path} is not a number, as in {path}:0.7"))
            }
        },
        _ => Ok((entry, None)),
    }
}

/// Returns names of sources by their paths: the part of the file's name before its endings, or the path, where two have
/// the same name.
fn source_names<'a>(paths: impl Iterator<Item = &'a str>) -> Vec<String> {
    let paths: Vec<&str> = paths.collect();
    let short: Vec<&str> = paths.iter().map(|path| short_name(path)).collect();
    let is_unique = |name: &str| short.iter().filter(|other| **other == name).count() == 1;
    let name = |index: usize| if is_unique(short[index]) { short[index] } else { paths[index] };
    (0..paths.len()).map(|index| name(index).to_owned()).collect()
}

/// Returns the name of a source: `web` for `data/web.jsonl.gz`, for `data/web/` and for `data/web/*.bin`.
fn short_name(path: &str) -> &str {
    let parts = path.split('/').rev().filter(|part| !part.is_empty());
    let mut names = parts.map(|part| part.split_once('.').map_or(part, |(name, _)| name));
    let is_plain = |name: &&str| !name.is_empty() && !name.contains(['*', '?', '[']);
    names.find(is_plain).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        }
        dir
    }

    fn read(dir: &tempfile::TempDir, list: &str) -> std::result::Result<Vec<String>, String> {
        let list = list.replace('@', &format!("{}/", dir.path().display()));
        let prefix = format!("{}/", dir.path().display());
        let list = DataList::read("--data", Path::new(&list)).map_err(|error| error.to_string())?;
        let describe = |source: &ListedSource| {
            let files: Vec<String> =
                source.files.iter().map(|file| file.display().to_string()).collect();
            let weight =
                if list.is_mixture { format!(" {}", source.weight) } else { String::new() };
            format!("{}{weight}: {}", source.name, files.join(" ")).replace(&prefix, "")
        };
        Ok(list.sources.iter().map(describe).collect())
    }

    #[test]
    fn lists_name_files_folders_and_globs() {
        let dir = folder(&[
            "b.bin",
            "b.bin.json",
            "a.bin",
            "a.idx",
            ".x",
            "_SUCCESS",
            "more/c.bin",
            "odd,name:1.txt",
        ]);
        for (list, expected) in [
            ("@a.bin", &["a.bin: a.bin"][..]),
            ("@", &[": a.bin b.bin odd,name:1.txt"]),
            ("@*.bin", &["*.bin: a.bin b.bin"]),
            ("@**/*.bin", &["**/*.bin: a.bin b.bin more/c.bin"]),
            ("@more,@a.bin", &["more,a.bin: more/c.bin a.bin"]),
            ("@odd,name:1.txt", &["odd,name:1.txt: odd,name:1.txt"]),
            ("@b.bin:3,@more:0.5", &["b 3: b.bin", "more 0.5: more/c.bin"]),
            ("@more/*.bin:1", &["more 1: more/c.bin"]),
        ] {
            assert_eq!(read(&dir, list).unwrap(), expected, "{list}");
        }
        let same_names = folder(&["a/train.bin", "b/train.bin"]);
        let names = read(&same_names, "@a/train.bin:1,@b/train.bin:1").unwrap();
        assert_eq!(names, ["a/train.bin 1: a/train.bin", "b/train.bin 1: b/train.bin"]);
    }

    #[test]
    fn mixture_files_name_sources() {
        let dir = folder(&["web/1.bin", "web/2.bin", "code.bin"]);
        let mixture = dir.path().join("mix.toml");
        let read_text = |text: &str| {
            std::fs::write(&mixture, text).unwrap();
            read(&dir, "@mix.toml")
        };
        let text = "[web]\ndata = \"web/*.bin\"\nweight = 0.7\norder = \"shuffled\"\n\
                    [code]\ndata = [\"code.bin\"]\nweight = 0.3\n";
        let expected = ["code 0.3: code.bin", "web 0.7: web/1.bin web/2.bin"];
        assert_eq!(read_text(text).unwrap(), expected);
        for (text, part) in [
            ("", "has no sources"),
            ("[web]\ndata = \"web\"\n", "missing field `weight`"),
            ("[web]\ndata = \"web\"\nweigth = 1\n", "unknown field `weigth`"),
            ("[web]\ndata = []\nweight = 1\n", "[web] has no files"),
            ("[web]\ndata = \"x/*\"\nweight = 1\n", "no file matches"),
            ("web = 1\n", "is no mixture of sources"),
            (
                "[a]\ndata = \"web\"\nweight = 1\n[b]\ndata = \"web/1.bin\"\nweight = 1\n",
                "named twice",
            ),
        ] {
            let found = read_text(text).unwrap_err();
            assert!(found.starts_with("--data: ") && found.contains(part), "{text}: {found}");
        }
    }

    #[test]
    fn unusable_lists_state_the_fix() {
        let dir = folder(&["a.bin", "b.bin", "more/c.bin"]);
        std::fs::create_dir(dir.path().join("empty")).unwrap();
        std::fs::create_dir(dir.path().join("outer")).unwrap();
        std::fs::create_dir(dir.path().join("outer/inner")).unwrap();
        for (list, part) in [
            ("@a.bin:0.5,@b.bin", "b.bin has no weight, but others have"),
            ("@a.bin:x,@b.bin:1", "the weight `x` of "),
            ("@a.bin,", "an entry of the list is empty"),
            ("@a.bin:1,:2", "`:2` names no file"),
            ("@a.bin,@a.bin", "a.bin is named twice"),
            ("@a.bin:1,@./a.bin:1", "a.bin is named twice"),
            ("@*.txt", "no file matches"),
            ("@a[.bin", "is not a valid glob"),
            ("@empty", "empty holds no files; name a folder"),
            ("@outer", "outer holds no files but folders"),
            ("https://x.org/a.bin", "is a URL (https), which is not read; download it"),
            ("ftp://bucket/a.bin", "is a URL (ftp)"),
        ] {
            let text = read(&dir, list).unwrap_err();
            assert!(text.starts_with("--data: ") && text.contains(part), "{list}: {text}");
        }
    }
}

//! What the book shows besides its code blocks: the README's error, pages that can be reached, a true map of the code.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// `BLESS=1` writes the error into the README.
#[test]
fn the_readme_shows_the_error_of_its_model() {
    let path = root().join("../README.md");
    let readme = read(&path);
    let error = read(&root().join("../tests/ui/book/column_after_column.stderr"));
    let (before, rest) = readme.split_once("```console\nerror").expect("the README shows an error");
    let (_, after) = rest.split_once("```\n").expect("the block ends");
    let expected = format!("{before}```console\n{error}```\n{after}");
    if env::var_os("BLESS").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    assert!(
        readme == expected || env::var_os("BLESS").is_some(),
        "BLESS=1 brings the README up to date"
    );
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let summary = read(&root().join("src/SUMMARY.md"));
    for page in pages() {
        let name = page.strip_prefix(root().join("src")).unwrap().display().to_string();
        // The table is part of another page.
        if !["SUMMARY.md", "attributes_table.md"].contains(&name.as_str()) {
            assert!(summary.contains(&format!("({name})")), "{name} is not in SUMMARY.md");
        }
    }
}

/// mdBook only warns of a file that it does not find.
#[test]
fn what_pages_link_to_and_include_exists() {
    let readme = root().join("../README.md");
    for page in pages().into_iter().chain([readme]) {
        let text = read(&page);
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        let includes =
            text.split("{{#include ").skip(1).filter_map(|rest| rest.split([':', '}']).next());
        for target in links.filter(|link| !link.is_empty() && !link.contains("://")).chain(includes)
        {
            let file = page.parent().unwrap().join(target);
            assert!(file.exists(), "{} refers to {target}, which does not exist", page.display());
        }
    }
}

/// The table in the page on the architecture lists every module of the runtime with all that it may use.
#[test]
fn modules_use_only_what_the_architecture_allows() {
    let page = read(&root().join("src/contributing/architecture.md"));
    let (_, table) = page.split_once("| module | may use |\n|---|---|\n").expect("the table");
    let rows: Vec<Vec<&str>> = table
        .lines()
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.split('`').skip(1).step_by(2).collect())
        .collect();
    let source = root().join("../runtime/src");
    let modules = read(&source.join("lib.rs"));
    for module in modules.lines().filter_map(|line| line.strip_prefix("pub mod ")) {
        let module = module.trim_end_matches(';');
        let listed = rows.iter().any(|row| row[0] == module);
        assert!(
            listed || ["prelude", "__private"].contains(&module),
            "`{module}` is not in the table"
        );
    }
    for row in &rows {
        let (folder, file) = (source.join(row[0]), source.join(format!("{}.rs", row[0])));
        let files = if folder.is_dir() { files(&folder, "rs") } else { vec![file] };
        for file in files {
            let text = read(&file);
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let used = code.flat_map(|line| line.split("crate::").skip(1));
            let used = used
                .filter_map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next());
            for used in used.filter(|name| rows.iter().any(|row| row[0] == *name)) {
                assert!(row.contains(&used), "{} uses `{used}`", file.display());
            }
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn pages() -> Vec<PathBuf> {
    files(&root().join("src"), "md")
}

/// The files under `folder` whose name ends in `.extension`.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => files(&path, extension),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect()
}

//! Vocabulary and form of the sources: retired terms, first doc lines in the wrong form, doc paragraphs without an
//! empty line before them and long lines do not come back.
//!
//! The terms are those of the book's glossary.

mod terms;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use terms::{Line, RETIRED};

/// Lines that may contain a retired term: the file, and a part of the line.
const ALLOWED: &[(&str, &str)] = &[
    ("runtime/core/src/nn/fused_loss.rs", "UnitSlice"),
    ("runtime/tokenize/src/test_tokenizer.rs", "post_processor"),
    ("runtime/tokenize/src/marked.rs", "post_processor"),
    ("runtime/tokenize/src/file.rs", "get_post_processor"),
];

/// Files that define the terms themselves.
const DEFINITIONS: [&str; 2] = ["tests/words", "book/src/glossary.md"];

/// Folders without sources.
const SKIPPED: [&str; 2] = ["target", "shared"];

/// Extensions of checked files.
const EXTENSIONS: [&str; 12] =
    ["rs", "cu", "cuh", "hpp", "c", "md", "toml", "py", "sh", "svg", "stderr", "txt"];

/// Extensions of files whose lines are short; files without an extension are programs.
const CODE: [&str; 8] = ["", "rs", "cu", "cuh", "hpp", "py", "sh", "toml"];

/// Folders of recorded and generated files.
const RECORDED: [&str; 2] = ["fixtures", "snapshots"];

/// Longest line, in columns.
const MAX_COLUMNS: usize = 120;

/// First words of a doc comment that is neither a noun phrase nor a third-person verb of the API guidelines.
const OPENINGS: [(&str, &str); 19] = [
    ("What ", "a noun phrase, or a verb such as \"Returns\""),
    ("Whether ", "\"Returns true if\" or \"True if\""),
    ("Says ", "\"Returns\", \"Sets\" or \"Reports\""),
    ("Gives ", "\"Returns\" or \"Frees\""),
    ("Lets ", "\"Allows\" or \"Enables\""),
    ("Tells ", "\"Returns\" or \"Reports\""),
    ("Its ", "\"The\", or the name of the owner"),
    ("How ", "a noun phrase, such as \"Style in which\""),
    ("Which ", "a noun phrase"),
    ("Where ", "a noun phrase, or \"if\""),
    ("As ", "a verb: \"Implements\", \"Runs like\""),
    ("Of ", OBJECT),
    ("For ", OBJECT),
    ("With ", OBJECT),
    ("At ", OBJECT),
    ("By ", OBJECT),
    ("From ", OBJECT),
    ("When ", OBJECT),
    ("So ", OBJECT),
];

/// Replacement of an opening without its object.
const OBJECT: &str = "the noun that it belongs to first";

#[test]
fn sources_keep_the_rules_of_words_and_form() {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in the repository");
    let mut problems = String::new();
    let ci = ["run", "profile.toml"].map(|name| root.join(".ci").join(name));
    for file in source_files(root).into_iter().chain(ci) {
        let name = file.strip_prefix(root).expect("the file is in the repository");
        if DEFINITIONS.iter().any(|room| name.starts_with(room)) {
            continue;
        }
        let text =
            fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        check_text(&name.display().to_string(), &text, &mut problems);
    }
    assert!(problems.is_empty(), "problems of the sources:\n{problems}");
}

/// Appends a line to `problems` for each retired term, doc opening, joined doc paragraph and long line in a file.
fn check_text(file: &str, text: &str, problems: &mut String) {
    let is_rust = file.ends_with(".rs");
    let path = Path::new(file);
    let is_recorded = path.iter().any(|part| RECORDED.iter().any(|folder| part == *folder));
    let extension = path.extension().map_or("", |extension| extension.to_str().unwrap_or_default());
    let is_code = CODE.contains(&extension) && !is_recorded;
    let mut previous_doc = "";
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let (doc, content) = doc_comment(line);
        let columns = line.chars().count();
        if is_code && columns > MAX_COLUMNS {
            let _ = writeln!(problems, "{file}:{number}: {columns} columns: wrap at {MAX_COLUMNS}");
        }
        if is_rust && !doc.is_empty() && content.starts_with(' ') && !content.starts_with("  ") {
            let _ = writeln!(
                problems,
                "{file}:{number}: paragraph joined to the summary: use an empty line, and one blank"
            );
        }
        let is_allowed = ALLOWED.iter().any(|(path, part)| *path == file && line.contains(part));
        if !is_allowed {
            let searched = Line::new(line);
            for (term, instead) in RETIRED {
                if searched.has_term(term) {
                    let _ = writeln!(problems, "{file}:{number}: `{term}`: use {instead}");
                }
            }
            // Only the first line of a comment is a summary.
            let is_summary = is_rust && !doc.is_empty() && doc != previous_doc;
            for (opening, instead) in OPENINGS {
                if is_summary && content.starts_with(opening) {
                    let opening = opening.trim_end();
                    let _ = writeln!(
                        problems,
                        "{file}:{number}: doc comment begins with `{opening}`: use {instead}"
                    );
                }
            }
        }
        previous_doc = doc;
    }
}

/// Splits a line into its doc comment marker, empty for other lines, and the text after it.
fn doc_comment(line: &str) -> (&str, &str) {
    let line = line.trim_start();
    match ["/// ", "//! "].into_iter().find(|marker| line.starts_with(marker)) {
        Some(marker) => (marker, &line[marker.len()..]),
        // An empty line within a doc comment.
        None if matches!(line, "///" | "//!") => (if line == "///" { "/// " } else { "//! " }, ""),
        None => ("", line),
    }
}

/// Returns all source files below `folder`, sorted.
fn source_files(folder: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> =
        read.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.sort();
    let is_skipped = |path: &PathBuf| {
        path.file_name().is_some_and(|name| {
            let is_hidden = name.to_string_lossy().starts_with('.');
            is_hidden || SKIPPED.iter().any(|skipped| name == *skipped)
        })
    };
    let is_source = |path: &PathBuf| {
        path.extension().is_some_and(|found| EXTENSIONS.iter().any(|source| found == *source))
    };
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() && !is_skipped(&path) {
            files.extend(source_files(&path));
        } else if path.is_file() && is_source(&path) {
            files.push(path);
        }
    }
    files
}

#[test]
fn problems_of_words_and_form_are_found() {
    let text = "//! What a file is.\n//! Whether it is good.\n\n/// Returns a value.\n/// Whether it is set.\nfn \
                recomputed_once_more() {} // whoever Initialises\n/// Its size.\n///  Of all.\n";
    let text = format!("{text}const LONG: &str = \"{}\";\n", "e".repeat(120));
    let mut problems = String::new();
    check_text("a/b.rs", &text, &mut problems);
    let found: Vec<&str> = problems.lines().collect();
    assert_eq!(
        found,
        [
            "a/b.rs:1: doc comment begins with `What`: use a noun phrase, or a verb such as \"Returns\"",
            "a/b.rs:6: `once more`: use `again`, or a verb with `re-`: recompute, retry",
            "a/b.rs:6: `whoever`: use the component's name",
            "a/b.rs:6: `initialis*`: use `initializ-`",
            "a/b.rs:7: doc comment begins with `Its`: use \"The\", or the name of the owner",
            "a/b.rs:8: paragraph joined to the summary: use an empty line, and one blank",
            "a/b.rs:9: 142 columns: wrap at 120",
        ]
    );
}

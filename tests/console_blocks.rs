//! Console blocks of the book: commands, and the lines that they print.
//!
//! A block is checked as its reader would check it. `...` stands for lines that are left out, and `[..]` for words.
//! Words are compared without the spaces between them, and a number with a decimal point may differ by one unit of its
//! last digit. Warnings and progress, which a program writes to stderr, are before its results. A command that ends in
//! `\` goes on in the next line. One that prints `error:` exits with code 2, one that prints `REFUSED` with 1, and any
//! other one with 0.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A command of a page, with the lines that follow it.
pub struct ConsoleCommand {
    /// Page and line.
    place: String,
    /// A line for a shell.
    pub line: String,
    expected: Vec<String>,
}

/// The program of the command line, which has tests of its own.
const TOOL: &str = "meshwright ";

/// Returns the commands of the console blocks in a folder of the book, page by page: of blocks with or without the
/// program `meshwright`.
pub fn commands_in(folder: &str, with_tool: bool) -> Vec<ConsoleCommand> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src").join(folder);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut pages: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    let has_tool = |block: &Vec<ConsoleCommand>| {
        block.iter().any(|command| command.line.starts_with(TOOL)) == with_tool
    };
    pages.iter().flat_map(|page| blocks_of(page)).filter(has_tool).flatten().collect()
}

fn blocks_of(page: &Path) -> Vec<Vec<ConsoleCommand>> {
    let text = std::fs::read_to_string(page).unwrap();
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((_, fence)) = lines.next() {
        if fence != "```console" {
            continue;
        }
        let mut commands: Vec<ConsoleCommand> = Vec::new();
        while let Some((idx, line)) = lines.next().filter(|(_, line)| *line != "```") {
            let Some(command) = line.strip_prefix("$ ") else {
                let place = || format!("{}:{}", page.display(), idx + 1);
                let last = commands.last_mut();
                let last = last.unwrap_or_else(|| panic!("{}: not a command", place()));
                last.expected.push(line.to_owned());
                continue;
            };
            let mut line = command.to_owned();
            while let Some(begun) = line.strip_suffix('\\') {
                line = begun.to_owned() + lines.next().expect("the command goes on").1;
            }
            let place = format!("{}:{}", page.display(), idx + 1);
            commands.push(ConsoleCommand { place, line, expected: Vec::new() });
        }
        blocks.push(commands);
    }
    blocks
}

impl ConsoleCommand {
    /// Runs the command in a folder, with that of `program` before all others on its path, and compares what it prints
    /// and its exit code with the page.
    pub fn run(&self, program: &str, folder: &Path) {
        let programs = Path::new(program).parent().expect("a program is in a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", programs.display());
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", &self.line]).env("PATH", path).current_dir(folder).output();
        let output = output.unwrap_or_else(|error| panic!("{}: {error}", self.place));
        let printed = [output.stderr, output.stdout].map(|text| String::from_utf8(text).unwrap());
        self.check(output.status.code(), &printed.concat());
    }

    fn check(&self, code: Option<i32>, printed: &str) {
        let ConsoleCommand { place, expected, .. } = self;
        let prints = |start: &str| expected.iter().any(|line| line.starts_with(start));
        let expected_code = if prints("error: ") { 2 } else { i32::from(prints("REFUSED ")) };
        assert_eq!(code, Some(expected_code), "{place}\n{printed}");
        let mut left = printed.lines();
        let mut skips = false;
        for line in expected {
            if line == "..." {
                skips = true;
                continue;
            }
            let found = if skips { left.find(|found| agree(line, found)) } else { left.next() };
            let agrees = found.is_some_and(|found| agree(line, found));
            assert!(agrees, "{place}: no `{line}`, but {found:?}\n{printed}");
            skips = false;
        }
        let rest = left.next();
        assert!(skips || rest.is_none(), "{place}: the page ends before {rest:?}");
    }
}

/// Compares a line of a page with one that is printed.
fn agree(expected: &str, found: &str) -> bool {
    let [expected, found] =
        [expected, found].map(|line| line.split_whitespace().collect::<Vec<_>>());
    words_agree(&expected, &found)
}

fn words_agree(expected: &[&str], found: &[&str]) -> bool {
    match (expected, found) {
        ([], []) => true,
        (["[..]", rest @ ..], _) => (0..=found.len()).any(|from| words_agree(rest, &found[from..])),
        ([word, expected @ ..], [other, found @ ..]) => {
            word_agrees(word, other) && words_agree(expected, found)
        }
        _ => false,
    }
}

fn word_agrees(expected: &str, found: &str) -> bool {
    let number = |word: &str| {
        let word = word.trim_end_matches([',', ';', ':']);
        let (_, decimals) = word.split_once('.')?;
        Some((word.parse::<f64>().ok()?, 0.1f64.powi(decimals.len() as i32)))
    };
    match (number(expected), number(found)) {
        (Some((a, unit)), Some((b, _))) => (a - b).abs() <= 1.01 * unit,
        _ => expected == found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_agree_as_documented() {
        for (expected, found, agrees) in [
            ("loss 5.5853 to 4.9510", "loss 5.5853  to 4.9511", true),
            ("loss 5.5853 to 4.9510", "loss 5.5853 to 4.9512", false),
            ("4 ranks", "5 ranks", false),
            ("4 ranks", "4 ranks more", false),
            ("in [..] s: [..]", "in 0.1 s: loss 5", true),
            ("in [..] s", "in 0.1 ms", false),
            ("3.67 MB,", "3.68 MB,", true),
            ("3.67 MB", "3.67 kB", false),
        ] {
            assert_eq!(agree(expected, found), agrees, "{expected} {found}");
        }
    }

    #[test]
    fn a_command_is_checked_to_its_end() {
        let check = |lines: &[&str], printed: &str| {
            let command = ConsoleCommand {
                place: "page.md:1".to_owned(),
                line: "program".to_owned(),
                expected: lines.iter().map(|line| (*line).to_owned()).collect(),
            };
            std::panic::catch_unwind(|| command.check(Some(0), printed)).is_ok()
        };
        assert!(check(&["...", "b", "..."], "a\nb\nc") && check(&["a", "...", "c"], "a\nb\nc"));
        assert!(!check(&["...", "b"], "a\nb\nc") && !check(&["b", "..."], "a\nb\nc"));
        assert!(!check(&[], "a") && !check(&["...", "d", "..."], "a\nb\nc"));
    }
}

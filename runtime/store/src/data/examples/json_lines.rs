//! JSONL: an object per line, read by its position.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::json_field::read_object;
use crate::data::fingerprint::hash_file_blocks;
use crate::data::{DataError, Example, ExampleSource, FileProblem};

/// Most bytes of a line, which is held in memory.
const MAX_LINE: u64 = 64 << 20;

/// Bytes of a file in which line ends are searched together.
const SEARCHED: u64 = 8 << 20;

/// Bytes of lines that are read when a file is opened. Later ones are checked when they are read, so that opening a
/// file of any size stays quick.
const CHECKED_AT_START: u64 = 64 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The objects of a JSONL file, one per line. Only the place of each line is held in memory. Paths in the objects are
/// relative to the folder of the file.
#[derive(Debug)]
pub struct JsonObjects {
    name: String,
    folder: Arc<Path>,
    file: File,
    /// The first byte of each line, and the byte after the last one's end.
    starts: Vec<u64>,
    fingerprint: String,
}

impl JsonObjects {
    /// Opens a regular file. White space after the last object is no line.
    ///
    /// # Errors
    /// A file that cannot be read or has no line; a line that is empty, too long, or among the first ones no JSON
    /// object, with its number and column.
    pub fn open(path: &Path) -> Result<JsonObjects, DataError> {
        JsonObjects::with_longest(path, MAX_LINE)
    }

    fn with_longest(path: &Path, longest: u64) -> Result<JsonObjects, DataError> {
        let name = path.display().to_string();
        let io = |source| DataError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        let bytes = file.metadata().map_err(io)?.len();
        let fingerprint = format!("{:016x}", hash_file_blocks(&file, bytes).map_err(io)?);
        let starts = line_starts(&file, bytes).map_err(io)?;
        let folder = path.parent().unwrap_or(Path::new("")).into();
        let mut lines = JsonObjects { name, folder, file, starts, fingerprint };
        lines.check_lengths(longest)?;
        lines.leave_out_end().map_err(io)?;
        if lines.examples() == 0 {
            return Err(DataError::Empty { name: lines.name });
        }
        lines.check_start().map_err(DataError::File)?;
        Ok(lines)
    }

    /// Leaves out lines of white space at the end.
    fn leave_out_end(&mut self) -> io::Result<()> {
        while let Some(last) = self.examples().checked_sub(1) {
            if !self.line(last)?.trim_ascii().is_empty() {
                break;
            }
            self.starts.pop();
        }
        Ok(())
    }

    fn check_lengths(&self, longest: u64) -> Result<(), DataError> {
        let is_long = |index: &usize| self.starts[index + 1] - self.starts[*index] > longest + 2;
        match (0..self.examples() as usize).into_par_iter().find_first(is_long) {
            Some(index) => {
                let mebibytes = longest >> 20;
                let problem = format!(
                    "the line is longer than {mebibytes} MiB; write large data to files, and their paths to the line"
                );
                Err(DataError::File(self.problem(index as u64, problem)))
            }
            None => Ok(()),
        }
    }

    /// Reads the first lines, and those that are too short for an object, on all cores.
    fn check_start(&self) -> Result<(), FileProblem> {
        let is_checked = |index: &usize| {
            let Range { start, end } = self.range(*index as u64);
            start < CHECKED_AT_START || end - start < 3
        };
        let lines = (0..self.examples() as usize).into_par_iter().filter(is_checked);
        let found = lines.find_map_first(|index| self.read_line(index as u64).err());
        found.map_or(Ok(()), Err)
    }

    fn range(&self, index: u64) -> Range<u64> {
        self.starts[index as usize]..self.starts[index as usize + 1]
    }

    /// Reads a line, with its end.
    fn line(&self, index: u64) -> io::Result<Vec<u8>> {
        let Range { start, end } = self.range(index);
        let mut line = vec![0; (end - start) as usize];
        self.file.read_exact_at(&mut line, start)?;
        Ok(line)
    }

    fn read_line(&self, index: u64) -> Result<Example, FileProblem> {
        let line = self.line(index).map_err(|error| {
            let problem = match error.kind() {
                io::ErrorKind::UnexpectedEof => "the file was cut off while it was read".to_owned(),
                _ => format!("cannot read the line: {error}"),
            };
            self.problem(index, problem)
        })?;
        let object = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| index == 0).unwrap_or(&line);
        let object = object.trim_ascii_end();
        if object.trim_ascii_start().is_empty() {
            let problem = "the line is empty; remove it, or write an object to it".to_owned();
            return Err(self.problem(index, problem));
        }
        read_object(object).map_err(|error| self.problem(index, explain(&error)))
    }

    fn problem(&self, index: u64, problem: String) -> FileProblem {
        FileProblem { name: format!("{}:{}", self.name, index + 1), problem }
    }
}

impl ExampleSource for JsonObjects {
    fn name(&self) -> &str {
        &self.name
    }

    fn examples(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }

    fn read(&self, index: u64) -> io::Result<Example> {
        self.read_line(index)
            .map(|example| example.in_folder(Arc::clone(&self.folder)))
            .map_err(|problem| io::Error::new(io::ErrorKind::InvalidData, problem.to_string()))
    }
}

/// Returns the first byte of each line, and the length of the file.
fn line_starts(file: &File, bytes: u64) -> io::Result<Vec<u64>> {
    let parts = (0..bytes.div_ceil(SEARCHED)).into_par_iter().map(|part| {
        let start = part * SEARCHED;
        let mut text = vec![0; SEARCHED.min(bytes - start) as usize];
        file.read_exact_at(&mut text, start)?;
        let ends = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        Ok(ends.map(|(at, _)| start + at as u64 + 1).collect())
    });
    let parts: Vec<Vec<u64>> = parts.collect::<io::Result<_>>()?;
    let mut starts = vec![0];
    starts.extend(parts.into_iter().flatten());
    if starts.last() != Some(&bytes) {
        starts.push(bytes);
    }
    Ok(starts)
}

/// Explains why a line is no object.
fn explain(error: &serde_json::Error) -> String {
    let reason = error.to_string();
    let reason = reason.split(" at line ").next().unwrap_or_default();
    let column = error.column();
    if reason.contains("surrogate") || reason.contains("hex escape") {
        return format!(
            "at column {column}, a \\u escape is half of a surrogate pair, which is no character; remove it, such as \
             in Python by text.encode('utf-8', 'ignore').decode()"
        );
    }
    let fix = "write each example as one JSON object on a line of its own";
    if error.is_data() {
        return format!("{reason}; {fix}");
    }
    format!("broken JSON at column {column} ({reason}); {fix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(text: &[u8]) -> Result<JsonObjects, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        std::fs::write(&path, text).unwrap();
        let prefix = format!("{}/", dir.path().display());
        JsonObjects::open(&path).map_err(|error| error.to_string().replace(&prefix, ""))
    }

    #[test]
    fn each_line_is_an_example() {
        let text =
            b"\xef\xbb\xbf{\"a\": 1}\r\n  {\"a\": 2, \"b\": \"\xc3\xa9\"}\n{\"a\": 3}\n \r\n\n";
        let lines = open(text).unwrap();
        assert_eq!(lines.examples(), 3);
        let of = |index| lines.read(index).unwrap().integer("a").unwrap();
        assert_eq!([of(2), of(0), of(1)], [3, 1, 2]);
        assert_eq!(lines.read(1).unwrap().text("b"), Ok("é"));
        assert_eq!(open(b"{\"a\": 1}").unwrap().examples(), 1);
    }

    #[test]
    fn lines_are_found_across_parts_of_a_file() {
        let line = format!("{{\"text\": \"{}\", \"at\": ", "x".repeat(99_990));
        let rows = SEARCHED as usize / line.len() * 2 + 2;
        let text: String = (0..rows).map(|at| format!("{line}{at}}}\n")).collect();
        let lines = open(text.as_bytes()).unwrap();
        assert_eq!(lines.examples(), rows as u64);
        for index in 0..rows as u64 {
            assert_eq!(lines.read(index).unwrap().integer("at"), Ok(index as i64));
        }
    }

    #[test]
    fn other_content_has_another_fingerprint() {
        let [one, same, other] = [b"{\"a\": 1}\n", b"{\"a\": 1}\n", b"{\"a\": 2}\n"]
            .map(|text| open(text).unwrap().fingerprint());
        assert_eq!(one, same);
        assert_ne!(one, other);
    }

    #[test]
    fn wrong_lines_are_named_with_their_fix() {
        let fix = "write each example as one JSON object on a line of its own";
        for (line, part) in [
            ("", "the line is empty; remove it"),
            ("\r", "the line is empty; remove it"),
            ("   \t  ", "the line is empty; remove it"),
            ("}", "broken JSON at column 1"),
            ("prose", "broken JSON at column 1 (expected value)"),
            ("{\"a\": 1} {}", "broken JSON at column 10 (trailing characters)"),
            ("{\"a\": 1", "broken JSON at column 7 (EOF while parsing an object)"),
            ("[1, 2]", "invalid type: sequence, expected a JSON object"),
            ("\"text\"", "invalid type: string \"text\", expected a JSON object"),
            ("null", "invalid type: null, expected a JSON object"),
            ("{'a': 1}", "broken JSON at column 2 (key must be a string)"),
            ("{\"a\": NaN}", "broken JSON at column 7"),
            ("{\"a\": \"\\ud83e\"}", "half of a surrogate pair"),
            ("{\"a\": \"\x01\"}", "broken JSON at column"),
        ] {
            let text = open(format!("{{\"a\": 1}}\n{line}\n{{\"a\": 3}}\n").as_bytes());
            let text = text.map(|lines| lines.examples()).unwrap_err();
            assert!(text.starts_with("--data: a.jsonl:2: ") && text.contains(part), "{text}");
            let has_own_fix = text.contains("empty") || text.contains("surrogate");
            assert!(has_own_fix || text.ends_with(fix), "{text}");
        }
        let text = open(b"{\"a\": \"\xff\"}\n").map(|lines| lines.examples()).unwrap_err();
        assert!(text.contains("a.jsonl:1: broken JSON at column"), "{text}");
        for text in [&b""[..], b"\n", b" \r\n\n"] {
            let text = open(text).map(|lines| lines.examples()).unwrap_err();
            assert_eq!(text, "--data: a.jsonl is empty");
        }
    }

    #[test]
    fn long_lines_are_refused_before_they_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        std::fs::write(&path, "{\"a\": 1}\n").unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(MAX_LINE + 100).unwrap();
        let text = JsonObjects::open(&path).unwrap_err().to_string();
        assert!(text.contains("a.jsonl:2: the line is longer than 64 MiB"), "{text}");
        std::fs::write(&path, "{\"a\": 1}\r\n{\"a\": 12}\n").unwrap();
        assert_eq!(JsonObjects::with_longest(&path, 9).unwrap().examples(), 2);
        let text = JsonObjects::with_longest(&path, 6).unwrap_err().to_string();
        assert!(text.contains("a.jsonl:1: the line is longer"), "{text}");
    }

    #[test]
    fn a_file_that_is_cut_off_later_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        std::fs::write(&path, "{\"a\": 1}\n{\"a\": 2}\n").unwrap();
        let lines = JsonObjects::open(&path).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(9).unwrap();
        assert!(lines.read(0).is_ok());
        let text = lines.read(1).unwrap_err().to_string();
        assert!(text.ends_with("a.jsonl:2: the file was cut off while it was read"), "{text}");
    }
}

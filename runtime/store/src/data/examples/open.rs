//! Opening sources of examples by what their paths are.

use std::path::{Path, PathBuf};

use super::{Joined, JsonLines};
use crate::data::{DataError, DataFormat, DataInput, ExampleSource, FileProblem};

/// Opens examples: JSONL files. Several paths follow one another.
///
/// # Errors
/// No path, a path that cannot be read or is nothing of that, with the next step, and a file with a wrong line.
///
/// ```
/// # use meshwright::data::open_examples;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("train.jsonl");
/// std::fs::write(&path, "{\"text\": \"fine\", \"label\": 1}\n{\"text\": \"poor\", \"label\": 0}\n")?;
/// let examples = open_examples(&[path])?;
/// assert_eq!(examples.examples(), 2);
/// assert_eq!(examples.read(1)?.text("text")?, "poor");
/// # Ok(())
/// # }
/// ```
pub fn open_examples(paths: &[PathBuf]) -> Result<Box<dyn ExampleSource>, DataError> {
    let parts: Result<Vec<_>, _> = paths.iter().map(|path| open_one(path)).collect();
    let mut parts = parts?;
    match parts.len() {
        0 => Err(DataError::Mixture("no file of examples is named".to_owned())),
        1 => Ok(parts.remove(0)),
        _ => Ok(Box::new(Joined::new(parts))),
    }
}

fn open_one(path: &Path) -> Result<Box<dyn ExampleSource>, DataError> {
    let io = |source| DataError::Io { path: path.to_owned(), source };
    let metadata = std::fs::metadata(path).map_err(io)?;
    if metadata.is_dir() {
        return Err(io(std::io::ErrorKind::IsADirectory.into()));
    }
    if !metadata.is_file() {
        let kind = meshwright_os::kind_of_special_file(metadata.file_type()).unwrap_or("a pipe");
        return Err(DataError::SpecialFile { path: path.to_owned(), kind });
    }
    let refuse = |problem: &str| {
        let (name, problem) = (path.display().to_string(), problem.to_owned());
        Err(DataError::File(FileProblem { name, problem }))
    };
    let input = DataInput::open(path, None)?;
    if input.is_empty() {
        return Err(DataError::Empty { name: path.display().to_string() });
    }
    match input.format() {
        DataFormat::JsonLines => Ok(Box::new(JsonLines::open(path)?)),
        DataFormat::Gzip | DataFormat::Zstd => refuse(
            "it is compressed, but examples are read in any order; unpack it (gunzip -k, or unzstd)",
        ),
        DataFormat::Parquet => refuse(
            "it is a Parquet file, whose rows are not read one by one; write them as JSONL: python -c \"import \
             pandas; pandas.read_parquet('in.parquet').to_json('out.jsonl', orient='records', lines=True)\"",
        ),
        DataFormat::Text => refuse(
            "it is plain text, which has no examples; write each one as a JSON object on a line of its own, to a file \
             named .jsonl",
        ),
        _ => refuse(
            "it holds token ids, which have no fields; give the examples that the task names, such as a JSONL file",
        ),
    }
}

//! Opening sources of examples by what their paths are.

use std::path::{Path, PathBuf};

use super::{ImageFolder, Joined, JsonObjects, Listed, data_files, open_arrow};
use crate::data::{DataError, DataFormat, DataInput, ExampleSource, FileProblem, is_remote};

/// Opens examples. Several paths follow one another, and each is one of these:
///
/// - a JSONL file: an object per line, whose keys are the fields;
/// - a folder of the library `datasets`, or one of its Arrow files, with the feature `arrow`: a row per example, whose
///   columns are the fields;
/// - a folder of images, `FOLDER/CLASS/*.{jpg,jpeg,png}`: the fields `image` (bytes), `label` (the number of the class
///   among their sorted names), `class` and `path`;
/// - a folder of JSONL files.
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

fn open_folder(folder: &Path) -> Result<Box<dyn ExampleSource>, DataError> {
    let listed = Listed::of(folder)?;
    let join = |files: Vec<PathBuf>, open: &dyn Fn(&Path) -> _| {
        let parts: Result<Vec<_>, DataError> = files.iter().map(|file| open(file)).collect();
        Ok(Box::new(Joined::new(parts?).named(folder)) as Box<dyn ExampleSource>)
    };
    if let Some(files) = data_files(folder, &listed)? {
        return join(files, &open_arrow);
    }
    let lines: Vec<_> = listed.others.iter().filter(|name| is_json_lines(name)).collect();
    if !lines.is_empty() {
        return join(lines.into_iter().map(|name| folder.join(name)).collect(), &open_one);
    }
    if !(listed.folders.is_empty() && listed.images.is_empty()) {
        return Ok(Box::new(ImageFolder::open(folder)?));
    }
    let problem = if listed.others.is_empty() {
        "the folder is empty"
    } else {
        "the folder holds no examples"
    };
    let problem = format!(
        "{problem}; name a JSONL file, a folder that save_to_disk of datasets has written, or one with a folder of \
         images for each class"
    );
    Err(DataError::File(FileProblem { name: folder.display().to_string(), problem }))
}

fn is_json_lines(name: &str) -> bool {
    [".jsonl", ".ndjson", ".jsonlines"].iter().any(|ending| name.ends_with(ending))
}

fn open_one(path: &Path) -> Result<Box<dyn ExampleSource>, DataError> {
    let io = |source| DataError::Io { path: path.to_owned(), source };
    if is_remote(path) {
        return Err(DataError::File(FileProblem {
            name: path.display().to_string(),
            problem: "examples are not read from object storage; copy them to a disk".to_owned(),
        }));
    }
    let metadata = std::fs::metadata(path).map_err(io)?;
    if metadata.is_dir() {
        return open_folder(path);
    }
    if !metadata.is_file() {
        let kind = meshwright_os::kind_of_special_file(metadata.file_type()).unwrap_or("a pipe");
        return Err(DataError::SpecialFile { path: path.to_owned(), kind });
    }
    if path.extension().is_some_and(|ending| ending == "arrow") {
        return open_arrow(path);
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
        DataFormat::JsonLines => Ok(Box::new(JsonObjects::open(path)?)),
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

//! Replacement of `arrow.rs` in a program that is built without the feature `arrow`.

use std::path::Path;

use crate::data::{DataError, ExampleSource, FileProblem};

/// Refuses every file.
pub fn open_arrow(path: &Path) -> Result<Box<dyn ExampleSource>, DataError> {
    let problem = "it is an Arrow file, which needs the feature `arrow`: build with cargo run --release --features \
                   arrow .., or convert it to JSONL: python -c \"import datasets; \
                   datasets.Dataset.from_file('in.arrow').to_json('out.jsonl')\"";
    let (name, problem) = (path.display().to_string(), problem.to_owned());
    Err(DataError::File(FileProblem { name, problem }))
}

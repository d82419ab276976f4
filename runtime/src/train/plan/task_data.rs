//! The examples of a task.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::data::{DataSource, Example, ExampleSource, RowWriter, TaskRows, is_remote};
use crate::train::config::Config;
use crate::train::task::AnyTask;
use crate::train::{Error, Result, Task};

use super::list_problem::ListProblem;
use super::listed_files::expand;

/// Opens `--data`, or the examples that the program makes, for a task; a dry run without either has none.
///
/// # Errors
/// No data, and files that cannot be read.
pub fn open_training_examples<T: Task>(config: &Config, task: &AnyTask) -> Result<DataSource> {
    let of_program = config.task.as_ref().and_then(|input| input.examples.clone());
    let examples = match (of_program, &config.data) {
        (Some(examples), Some(_)) => {
            return Err(Error::Input(format!(
                "--data: the program makes its examples, {}, instead of reading files; leave it out",
                examples.name()
            )));
        }
        (Some(examples), None) => examples,
        (None, Some(path)) => open_examples("--data", path)?,
        (None, None) if config.has_synthetic_data() => Arc::new(NoExamples),
        (None, None) => {
            return Err(Error::Input(format!(
                "--data: the task {} has no examples; name a file, such as --data examples.jsonl",
                T::NAME
            )));
        }
    };
    Ok(DataSource::of_task(rows_of::<T>(config, task, examples)))
}

/// Opens the examples of `--eval-data`.
///
/// # Errors
/// Files that cannot be read.
pub fn open_validation_examples<T: Task>(
    config: &Config,
    task: &AnyTask,
    path: &Path,
) -> Result<DataSource> {
    let rows = rows_of::<T>(config, task, open_examples("--eval-data", path)?);
    Ok(DataSource::of_task(rows.of_validation()))
}

fn rows_of<T: Task>(config: &Config, task: &AnyTask, examples: Arc<dyn ExampleSource>) -> TaskRows {
    let task = task.get::<T>();
    let streams = task.streams();
    let make = move |example: &Example, key, row: &mut RowWriter<'_>| task.row(example, key, row);
    TaskRows::new(examples, (T::NAME, streams), Arc::new(make), config.seed)
}

/// Opens the examples that `list` names: a file or a folder, or else a list of files, folders and globs.
fn open_examples(flag: &'static str, list: &Path) -> Result<Arc<dyn ExampleSource>> {
    let refuse = ListProblem::of_flag(flag);
    let paths = match list.to_str() {
        Some(text) if !list.exists() => {
            let mut paths = Vec::new();
            for entry in text.split(',').map(|entry| Path::new(entry.trim())) {
                if entry.is_dir() || is_remote(entry) {
                    paths.push(entry.to_owned());
                } else {
                    paths.extend(expand(entry, &mut Vec::new()).map_err(&refuse)?);
                }
            }
            paths
        }
        _ => vec![list.to_owned()],
    };
    let opened = crate::data::open_examples(&paths);
    match flag {
        "--data" => Ok(opened?.into()),
        flag => Ok(opened.map_err(Error::of_validation(flag))?.into()),
    }
}

/// Checks that no flag is about rows of tokens.
pub fn check_flags(config: &Config, task: &str) -> Result<()> {
    let flags = [
        ("--text-key", config.text_key.is_some()),
        ("--token-dtype", config.token_dtype.is_some()),
        ("--documents", config.documents.is_some()),
        ("--eval-fraction", config.eval_fraction.is_some()),
    ];
    match flags.iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => Err(Error::Input(format!(
            "{flag}: the task {task} makes rows of examples, not of tokens; leave it out"
        ))),
        None => Ok(()),
    }
}

/// The examples of a dry run, which reads none.
struct NoExamples;

impl ExampleSource for NoExamples {
    fn name(&self) -> &str {
        "synthetic data"
    }

    fn examples(&self) -> u64 {
        1
    }

    fn fingerprint(&self) -> String {
        "no examples".to_owned()
    }

    fn read(&self, _: u64) -> io::Result<Example> {
        unreachable!("a dry run reads no examples")
    }
}

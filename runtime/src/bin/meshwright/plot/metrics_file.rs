//! The steps of a metrics file. It may be one that a run still writes, or that a failure has torn.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use meshwright_os::{InputFile, kind_of_special_file};
use serde_json::{Map, Value};

use crate::failure::Failure;

/// Most bytes of a line.
const MAX_LINE: u64 = 64 << 20;

/// The steps of a run.
#[derive(Default)]
pub struct Steps {
    steps: Vec<u64>,
    /// The values of each metric, by step: `None` if a step does not have it, and NaN for one that is not finite.
    values: Vec<Vec<Option<f64>>>,
    /// Names of all numbers in the file.
    pub metrics: BTreeSet<String>,
    /// Notes on what is left out.
    pub notes: Vec<String>,
}

impl Steps {
    /// Reads `metrics` from the file at `path`. A step that is repeated, as by a resumed run of another program,
    /// replaces the steps from there.
    pub fn read(path: &Path, metrics: &[&str]) -> Result<Steps, Failure> {
        let failed = |error: io::Error| {
            Failure::new(format!("cannot read {}: {error}", path.display()), &error)
        };
        let file =
            fs::metadata(path).and_then(|data| match kind_of_special_file(data.file_type()) {
                Some(kind) => {
                    Err(io::Error::other(format!("it is {kind}; name a file of --metrics")))
                }
                None => InputFile::open(path),
            });
        let mut reader = BufReader::new(file.map_err(failed)?);
        let mut steps = Steps { values: vec![Vec::new(); metrics.len()], ..Steps::default() };
        let (mut line, mut other_lines, mut number) = (Vec::new(), Vec::new(), 0u64);
        let mut is_complete = false;
        loop {
            line.clear();
            if (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line).map_err(failed)? == 0 {
                break;
            }
            number += 1;
            is_complete = line.ends_with(b"\n");
            // A file that was shortened while a run wrote to it may begin with zeros.
            let begin = line.iter().position(|byte| *byte != 0).unwrap_or(line.len());
            let line = &line[begin..];
            match parse(line) {
                Some((step, fields)) => steps.add(step, &fields, metrics),
                None if line.iter().all(u8::is_ascii_whitespace) => {}
                None => other_lines.push(number),
            }
        }
        match other_lines[..] {
            [] => {}
            [first, ..] if steps.steps.is_empty() && (first < number || is_complete) => {
                return Err(format!(
                    "{} is no file of --metrics: its line {first} is no JSON object with a `step`",
                    path.display()
                )
                .into());
            }
            [only] if only == number => {
                steps.notes.push("its last line is incomplete, and left out".to_owned());
            }
            [first, ..] => steps.notes.push(format!(
                "lines without metrics of a step are left out: {} of {number}; the first is line {first}",
                other_lines.len()
            )),
        }
        if steps.steps.is_empty() {
            steps.notes.push("it has no steps".to_owned());
        }
        for (metric, values) in metrics.iter().zip(&steps.values) {
            let mut wrong =
                steps.steps.iter().zip(values).filter(|(_, value)| value.is_some_and(f64::is_nan));
            if let Some((first, _)) = wrong.next() {
                let n_steps = 1 + wrong.count();
                let note = format!(
                    "{metric} is not finite in {n_steps} of its steps; the first is step {first}"
                );
                steps.notes.push(note);
            }
        }
        Ok(steps)
    }

    fn add(&mut self, step: u64, fields: &Map<String, Value>, metrics: &[&str]) {
        let kept = self.steps.partition_point(|earlier| *earlier < step);
        self.steps.truncate(kept);
        self.steps.push(step);
        for (metric, values) in metrics.iter().zip(&mut self.values) {
            values.truncate(kept);
            values.push(find(fields, metric).and_then(number_of));
        }
        for (key, value) in fields {
            match value {
                Value::Object(parts) if parts.keys().any(|part| !self.has(key, part)) => {
                    self.metrics.extend(parts.keys().map(|part| format!("{key}/{part}")));
                }
                value if number_of(value).is_some() && !self.metrics.contains(key) => {
                    self.metrics.insert(key.clone());
                }
                _ => {}
            }
        }
    }

    fn has(&self, key: &str, part: &str) -> bool {
        self.metrics.contains(&format!("{key}/{part}"))
    }

    /// Returns the number of steps.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Returns the steps that have the metric at a place of those that were read, with its values.
    pub fn of(&self, place: usize) -> impl Iterator<Item = (u64, Option<f64>)> {
        let values = self.steps.iter().zip(&self.values[place]);
        values.filter_map(|(step, value)| Some((*step, Some((*value)?))))
    }
}

/// Returns the names of runs in the legend: names of files, or their paths if names are equal.
pub fn run_names(files: &[&PathBuf]) -> Vec<String> {
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let count = |own: &str| files.iter().filter(|path| name(path) == own).count();
    let shown = |path: &&PathBuf| match name(path) {
        own if count(&own) == 1 => own,
        _ => path.display().to_string(),
    };
    files.iter().map(shown).collect()
}

/// Returns the step of a line, and its fields.
fn parse(line: &[u8]) -> Option<(u64, Map<String, Value>)> {
    match serde_json::from_slice(line) {
        Ok(Value::Object(fields)) => Some((fields.get("step")?.as_u64()?, fields)),
        _ => None,
    }
}

/// Returns the value of a metric, such as `peak_bytes/total`; a name may have a slash of its own.
fn find<'a>(fields: &'a Map<String, Value>, metric: &str) -> Option<&'a Value> {
    fields.get(metric).or_else(|| {
        let (key, part) = metric.split_once('/')?;
        fields.get(key)?.as_object()?.get(part)
    })
}

/// Returns the number that a value stands for: JSON has `null` for one that is not finite.
fn number_of(value: &Value) -> Option<f64> {
    if value.is_null() { Some(f64::NAN) } else { value.as_f64() }
}

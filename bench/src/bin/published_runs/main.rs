//! Predictions of published training runs of other software.
//!
//! `cargo run --release -p meshwright-bench --bin published_runs -- ROWS.csv --profiles FILE.toml -o PREDICTIONS.csv`

mod csv;
mod decoder;
mod edit;
mod machine;
#[cfg(test)]
mod mutants;
mod predict;
mod profile;
mod program;
mod row;
mod software;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, thread};

use csv::Table;
use predict::{Prediction, Predictor};
use program::Program;
use row::Run;

const USAGE: &str = "usage: published_runs ROWS.csv --profiles FILE.toml -o PREDICTIONS.csv";

fn main() -> ExitCode {
    match Arguments::parse().and_then(|arguments| arguments.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

struct Arguments {
    rows: PathBuf,
    profiles: PathBuf,
    output: PathBuf,
}

impl Arguments {
    fn parse() -> Result<Arguments, String> {
        let [mut rows, mut profiles, mut output] = [None, None, None];
        let mut words = std::env::args_os().skip(1);
        while let Some(word) = words.next() {
            let slot = match word.to_str() {
                Some("--profiles") => &mut profiles,
                Some("-o") => &mut output,
                Some(flag) if flag.starts_with('-') => {
                    return Err(format!("unknown flag {flag}; {USAGE}"));
                }
                _ => {
                    rows = Some(PathBuf::from(word));
                    continue;
                }
            };
            *slot =
                Some(PathBuf::from(words.next().ok_or(format!("{word:?} needs a file; {USAGE}"))?));
        }
        let given =
            |path: Option<PathBuf>, name: &str| path.ok_or(format!("{name} is missing; {USAGE}"));
        Ok(Arguments {
            rows: given(rows, "ROWS.csv")?,
            profiles: given(profiles, "--profiles")?,
            output: given(output, "-o")?,
        })
    }

    fn run(&self) -> Result<(), String> {
        let table = Table::read(&self.rows, row::COLUMNS)?;
        let predictor = Predictor::new(profile::read_profiles(&self.profiles)?);
        let output = self.output.display();
        // An output that cannot be written is reported before the work.
        fs::write(&self.output, "").map_err(|error| format!("{output}: {error}"))?;
        let rows: Vec<_> = table
            .records()
            .map(|record| Run::read(record).map(|run| (record.text("id").to_owned(), run)))
            .collect::<Result<_, _>>()?;
        let predictions =
            predict_all(&predictor, rows.iter().map(|(_, run)| run.as_ref()).collect());
        let mut text = "id,step_s,memory_bytes,status\n".to_owned();
        for ((id, _), prediction) in rows.iter().zip(predictions) {
            let id = csv::quoted(id);
            let line = match prediction {
                Ok(Prediction { seconds, memory }) => format!("{id},{seconds:.6},{memory:.0},ok"),
                Err(reason) => format!("{id},,,{}", csv::quoted(&reason)),
            };
            writeln!(text, "{line}").expect("text grows");
        }
        fs::write(&self.output, text).map_err(|error| format!("{output}: {error}"))
    }
}

/// A run, and the index of its row.
type IndexedRun<'a> = (usize, &'a Run);

/// Predicts runs on all cores. Runs of one program share its dry runs.
fn predict_all(
    predictor: &Predictor,
    runs: Vec<Result<&Run, &String>>,
) -> Vec<Result<Prediction, String>> {
    let mut groups: HashMap<_, Vec<IndexedRun<'_>>> = HashMap::new();
    let mut results: Vec<_> =
        runs.iter().map(|run| run.map(|_| None).map_err(String::clone)).collect();
    for (index, run) in runs.iter().enumerate() {
        if let Ok(run) = run {
            groups.entry(predictor.program(run)).or_default().push((index, run));
        }
    }
    let groups: Vec<_> = groups.into_iter().collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(&mut results));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(((program, counts), runs)) =
                    groups.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let predictions = predict_program(predictor, program, *counts, runs);
                    let mut done = done.lock().expect("no thread fails");
                    for ((index, _), prediction) in runs.iter().zip(predictions) {
                        done[*index] = prediction.map(Some);
                    }
                }
            });
        }
    });
    results
        .into_iter()
        .map(|result| result.map(|prediction| prediction.expect("each run has a group")))
        .collect()
}

fn predict_program(
    predictor: &Predictor,
    program: &Program,
    [first, second]: [usize; 2],
    runs: &[IndexedRun<'_>],
) -> Vec<Result<Prediction, String>> {
    let steps = program.step(first).and_then(|step| {
        let more = if first == second { None } else { Some(program.step(second)?) };
        Ok((step, more))
    });
    let predict = |(_, run): &IndexedRun<'_>| {
        let (step, more) = steps.as_ref().map_err(String::clone)?;
        predictor.predict(run, [step, more.as_ref().unwrap_or(step)])
    };
    runs.iter().map(predict).collect()
}

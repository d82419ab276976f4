//! The subcommand `report`: the course of one or several runs as one HTML page.

mod curves;
mod pauses;
mod run_numbers;
mod run_steps;
mod supervision;

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use meshwright::checkpoint::RunLog;
use meshwright::counted;
use meshwright::train::{PageDocument, is_page, page_paragraph};
use serde_json::json;

use crate::failure::Failure;
use crate::plot::metrics_file::run_names;
use crate::plot::output::{check_output, check_replaced, file_args, write_whole};
use run_steps::RunSteps;
use supervision::{LoggedRun, real_folder};

/// The reason for the ending of a page.
const REASON: &str = "only HTML is written";

pub fn command() -> Command {
    let [files, output] = file_args("OUT.html", "The page; an earlier one is replaced");
    Command::new("report")
        .about("Show losses, rates, memory, communication, saves and restarts of one or several runs as an HTML page")
        .arg(files)
        .arg(
            Arg::new("log")
                .long("log")
                .value_name("DIR")
                .action(ArgAction::Append)
                .value_parser(value_parser!(PathBuf))
                .help("A folder of --save with the run.log of `meshwright run`, whose starts and ends are listed \
                       [default: the folder of a metrics file, if it has a log]"),
        )
        .arg(output)
}

/// Runs the subcommand. Returns the text to print.
pub fn run_command(matches: &ArgMatches) -> Result<(String, bool), Failure> {
    let files: Vec<&PathBuf> = matches.get_many("files").into_iter().flatten().collect();
    let output: &PathBuf = matches.get_one("output").expect("it is required");
    check_output("-o", output, ("html", REASON), &files)?;
    check_replaced("-o", output, |text| is_page(&mut text.as_bytes()))?;
    let runs = files.iter().zip(run_names(&files)).map(|(path, name)| RunSteps::read(path, name));
    let runs = runs.collect::<Result<Vec<_>, _>>()?;
    let logs = read_logs(matches, &files)?;
    let page = page_of_runs(&runs, &logs);
    write_whole(output, &page).map_err(|error| {
        Failure::new(format!("-o: cannot write {}: {error}", output.display()), &error)
    })?;
    let mut text = String::new();
    for (path, run) in files.iter().zip(&runs) {
        run.notes().for_each(|note| text += &format!("{}: {note}\n", path.display()));
    }
    let steps = runs.iter().map(RunSteps::len).sum();
    let (shown, steps) = (output.display(), counted(steps, "step"));
    text += &format!("{shown}: {steps} of {}\n", counted(runs.len(), "run"));
    Ok((text, true))
}

/// Reads the logs that are named, or else those beside the metrics.
fn read_logs(matches: &ArgMatches, files: &[&PathBuf]) -> Result<Vec<LoggedRun>, Failure> {
    let named: Vec<&PathBuf> = matches.get_many("log").into_iter().flatten().collect();
    let dirs: Vec<PathBuf> = match named[..] {
        [] => files.iter().filter_map(|path| Some(path.parent()?.to_owned())).collect(),
        _ => named.iter().map(|dir| dir.to_path_buf()).collect(),
    };
    let mut logs = Vec::new();
    let mut known = BTreeSet::new();
    for dir in dirs.into_iter().filter(|dir| known.insert(real_folder(dir))) {
        let events = RunLog::read(&dir);
        let events = events.map_err(|error| Failure::new(format!("--log: {error}"), &error))?;
        if events.is_empty() && !named.is_empty() {
            let dir = dir.display();
            return Err(format!("--log: {dir} has no run.log of `meshwright run`").into());
        }
        if !events.is_empty() {
            logs.push(LoggedRun { dir, events });
        }
    }
    Ok(logs)
}

/// Returns the page.
fn page_of_runs(runs: &[RunSteps], logs: &[LoggedRun]) -> String {
    let title = match runs {
        [run] => format!("The run {}", run.name),
        _ => counted(runs.len(), "run"),
    };
    let mut page = PageDocument::new(&title, "");
    let numbers = |run: &RunSteps| {
        let own = logs.iter().filter(|log| log.is_of(run, runs.len()));
        run_numbers::RunNumbers::of(run, &own.collect::<Vec<_>>())
    };
    let numbers: Vec<_> = runs.iter().map(numbers).collect();
    page.add(&run_numbers::table_of_runs(&numbers));
    for (heading, html) in curves::sections(runs) {
        page.section(&heading, &html);
    }
    page.section("Saves", &run_numbers::table_of_saves(&numbers));
    let pauses = pauses::pauses_of_runs(runs, logs);
    let mut interruptions = pauses::table_of_pauses(&pauses);
    if logs.is_empty() {
        interruptions += &page_paragraph(
            "No log of `meshwright run` was read: --log DIR names the folder of --save that has it.",
        );
    }
    interruptions.extend(logs.iter().map(LoggedRun::table));
    page.section("Restarts and pauses", &interruptions);
    let data = json!({
        "runs": numbers,
        "pauses": pauses,
        "logs": logs.iter().map(LoggedRun::to_json).collect::<Vec<_>>(),
    });
    page.finish(&data)
}

//! The subcommand `plot`: draws the curves of metrics files.

mod axis;
pub mod chart;
pub mod metrics_file;
pub mod output;

use std::path::PathBuf;

use chart::{Curve, Panel, STEPS, draw_svg};
use clap::{Arg, ArgAction, ArgMatches, Command};
use meshwright::counted;
use metrics_file::{Steps, run_names};
use output::{check_output, check_replaced, file_args, is_drawing, write_whole};

use super::failure::Failure;

/// The metric of each step's batch, which is drawn together with the validation loss.
const LOSS: &str = "loss";
const EVAL_LOSS: &str = "eval_loss";

/// The reason for the ending of drawings.
pub const REASON: &str =
    "only SVG is written, which a browser shows and converters such as rsvg-convert take";

/// Limit of values that are drawn, and so is its inverse: axes compute with their differences and powers.
const LARGEST: f64 = 1e100;

pub fn command() -> Command {
    Command::new("plot")
        .about("Draw the losses, or other metrics, of one or several runs as SVG")
        .args(file_args("OUT.svg", "The drawing; an earlier one is replaced"))
        .arg(
            Arg::new("metric")
                .long("metric")
                .value_name("NAME,..")
                .action(ArgAction::Append)
                .value_delimiter(',')
                .default_value(LOSS)
                .help(
                    "Metrics such as grad_norm or peak_bytes/total, each below the one before; loss includes eval_loss",
                ),
        )
        .arg(
            Arg::new("log")
                .long("log")
                .action(ArgAction::SetTrue)
                .help("Logarithmic scale of the values; those that are not above 0 are left out"),
        )
}

/// Runs the subcommand. Returns the text to print.
pub fn run_command(matches: &ArgMatches) -> Result<(String, bool), Failure> {
    let files: Vec<&PathBuf> = matches.get_many("files").into_iter().flatten().collect();
    let output: &PathBuf = matches.get_one("output").expect("it is required");
    let given = matches.get_many::<String>("metric").into_iter().flatten();
    let mut metrics: Vec<&str> = Vec::new();
    for metric in given {
        if !metrics.contains(&metric.as_str()) {
            metrics.push(metric);
        }
    }
    check_output("-o", output, ("svg", REASON), &files)?;
    check_replaced("-o", output, is_drawing)?;
    let with_validation = metrics.contains(&LOSS) && !metrics.contains(&EVAL_LOSS);
    let read: Vec<&str> =
        metrics.iter().copied().chain(with_validation.then_some(EVAL_LOSS)).collect();
    let mut text = String::new();
    let mut runs = Vec::new();
    for (path, name) in files.iter().zip(run_names(&files)) {
        let steps = Steps::read(path, &read)?;
        steps.notes.iter().for_each(|note| text += &format!("{}: {note}\n", path.display()));
        runs.push((name, steps));
    }
    let is_log = matches.get_flag("log");
    let panels: Vec<Panel<'_>> = metrics
        .iter()
        .map(|metric| {
            let drawn = [Some(*metric), (*metric == LOSS && with_validation).then_some(EVAL_LOSS)];
            panel(drawn.into_iter().flatten(), &read, &runs, is_log)
        })
        .collect();
    if let Some(place) = panels.iter().position(|panel| panel.curves.is_empty()) {
        return Err(describe_missing(metrics[place], &runs, is_log).into());
    }
    let drawing = draw_svg(&panels, is_log);
    write_whole(output, &drawing).map_err(|error| {
        Failure::new(format!("-o: cannot write {}: {error}", output.display()), &error)
    })?;
    let steps: usize = runs.iter().map(|(_, steps)| steps.len()).sum();
    text += &format!(
        "{}: {} of {}\n",
        output.display(),
        counted(steps, "step"),
        counted(runs.len(), "run")
    );
    Ok((text, true))
}

/// Returns the panel with the curves of `drawn` metrics, those of validation as points.
fn panel<'a>(
    drawn: impl Iterator<Item = &'a str>,
    read: &[&str],
    runs: &'a [(String, Steps)],
    is_log: bool,
) -> Panel<'a> {
    let mut panel = Panel { metric: "", across: STEPS, curves: Vec::new() };
    for metric in drawn {
        if panel.metric.is_empty() {
            panel.metric = metric;
        }
        let place = read.iter().position(|other| *other == metric).unwrap_or_default();
        for (run, (name, steps)) in runs.iter().enumerate() {
            let is_drawn = |value: &f64| {
                let is_in_range =
                    value.abs() < LARGEST && (*value == 0.0 || value.abs() > 1.0 / LARGEST);
                is_in_range && (!is_log || *value > 0.0)
            };
            let has_points = metric.starts_with("eval_");
            let points: Vec<_> =
                steps.of(place).map(|(step, value)| (step, value.filter(is_drawn))).collect();
            if points.iter().any(|(_, value)| value.is_some()) {
                let label = match metric {
                    EVAL_LOSS if panel.metric == LOSS => format!("{name}, {EVAL_LOSS}"),
                    _ => name.clone(),
                };
                panel.curves.push(Curve { run, label, points, has_points });
            }
        }
    }
    panel
}

/// Describes a metric without values, with those that the files have.
fn describe_missing(metric: &str, runs: &[(String, Steps)], is_log: bool) -> String {
    if runs.iter().all(|(_, steps)| steps.len() == 0) {
        return "no file has the metrics of a step, so there is nothing to draw".to_owned();
    }
    let mut known: Vec<&str> =
        runs.iter().flat_map(|(_, steps)| steps.metrics.iter().map(String::as_str)).collect();
    known.sort_unstable();
    known.dedup();
    if known.contains(&metric) {
        let above = if is_log { " above 0, which --log needs" } else { "" };
        return format!("--metric: no step has a finite `{metric}`{above}");
    }
    format!("--metric: no file has numbers of `{metric}`; there are {}", known.join(", "))
}

//! Curves of metrics, as pictures of a page.

use super::run_steps::{COMMUNICATION, MEMORY, RunSteps};
use crate::plot::chart::{Curve, Panel, STEPS, draw_svg};

/// Headings, and the metrics that are drawn below them: those in one drawing are separated by a blank.
const DRAWINGS: [(&str, &str); 7] = [
    ("Loss", "loss eval_loss"),
    ("Gradient norm", "grad_norm"),
    ("Learning rate", "lr"),
    ("Tokens per second", "tokens_per_s"),
    ("Utilization", "mfu"),
    ("Goodput", "goodput"),
    ("Time of saves", "save_ms"),
];

/// Limit of values that are drawn: axes compute with their differences.
const LARGEST: f64 = 1e100;

/// Returns the headings of all drawings, and their HTML.
pub fn sections(runs: &[RunSteps]) -> Vec<(String, String)> {
    let mut sections = Vec::new();
    for (heading, metrics) in DRAWINGS {
        let curves: Vec<Curve> = metrics
            .split(' ')
            .flat_map(|metric| runs.iter().enumerate().map(move |(run, own)| (metric, run, own)))
            .filter_map(|(metric, run, own)| {
                let has_points = metric == "eval_loss" || metric == "save_ms";
                let label = if metric == "eval_loss" {
                    format!("{}, {metric}", own.name)
                } else {
                    own.name.clone()
                };
                curve(own, metric, (run, label), has_points)
            })
            .collect();
        let metric = metrics.split(' ').next().unwrap_or(metrics);
        if !curves.is_empty() {
            sections.push((
                heading.to_owned(),
                picture(heading, Panel { metric, across: STEPS, curves }),
            ));
        }
    }
    for (heading, metric) in
        [("Peak memory by category", MEMORY), ("Communication by axis", COMMUNICATION)]
    {
        let mut html = String::new();
        for run in runs {
            let parts = run.parts(metric).filter(|part| *part != "total").enumerate();
            let curves: Vec<Curve> = parts
                .filter_map(|(color, part)| {
                    curve(run, &format!("{metric}/{part}"), (color, part.to_owned()), false)
                })
                .collect();
            if !curves.is_empty() {
                let title = format!("{metric} of {}", run.name);
                html += &picture(&title, Panel { metric: &title, across: STEPS, curves });
            }
        }
        if !html.is_empty() {
            sections.push((heading.to_owned(), html));
        }
    }
    sections
}

/// Returns the curve of a metric, if a step has a value.
fn curve(
    run: &RunSteps,
    metric: &str,
    (color, label): (usize, String),
    has_points: bool,
) -> Option<Curve> {
    let is_drawn = |value: &f64| value.abs() < LARGEST;
    let points = run.of(metric).into_iter();
    let points: Vec<_> = points.map(|(step, value)| (step, value.filter(is_drawn))).collect();
    let is_empty = points.iter().all(|(_, value)| value.is_none());
    (!is_empty).then_some(Curve { run: color, label, points, has_points })
}

/// Returns a drawing as a picture, which the styles of the page do not change.
fn picture(title: &str, panel: Panel<'_>) -> String {
    let svg = draw_svg(&[panel], false);
    let mut encoded = String::with_capacity(2 * svg.len());
    for char in svg.chars() {
        match char {
            '%' | '#' | '"' | '<' | '>' | '&' => encoded += &format!("%{:02X}", u32::from(char)),
            '\n' => encoded.push(' '),
            char => encoded.push(char),
        }
    }
    let title = title.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
    format!(
        "<div class=\"wide\"><img alt=\"Curves: {title}\" src=\"data:image/svg+xml,{encoded}\"/></div>\n"
    )
}

//! Methods of cutting a model into stages: by cost, evenly, by counts, or by measured times.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::ChainOutline;
use super::partition::{Objective, optimal_counts};
use meshwright_os::read_text;

/// Cut of a model into stages: `auto`, `even`, the layers of each stage such as `7,8,8,7`, or a JSON file of measured
/// times.
///
/// ```
/// use meshwright::pipeline::StageCut;
///
/// assert_eq!("7,8,8,7".parse::<StageCut>(), Ok(StageCut::Counts(vec![7, 8, 8, 7])));
/// assert_eq!("times.json".parse::<StageCut>(), Ok(StageCut::Measured("times.json".into())));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StageCut {
    /// Minimizes the FLOPs of the most expensive stage. Of the optimal cuts, the one with the fewest layers in early
    /// stages.
    #[default]
    Auto,
    /// Distributes the layers evenly; the fields before the first stack count as one layer, and those after the last
    /// one too.
    Even,
    /// Number of layers of each stage; of a chain without stacks, number of fields.
    Counts(Vec<usize>),
    /// A JSON file with the milliseconds of each [`CutPoint`](super::CutPoint), by its path:
    /// `{"blocks.0": 1.93, "blocks.1": 1.87}`. Minimizes the time of the slowest stage.
    Measured(PathBuf),
}

/// Text that is not a [`StageCut`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a cut into stages: use `auto`, `even`, the number of layers of each stage such as `7,8,8,7`, or the \
     name of a .json file with measured times"
)]
pub struct ParseStageCutError(String);

impl FromStr for StageCut {
    type Err = ParseStageCutError;

    fn from_str(text: &str) -> Result<StageCut, ParseStageCutError> {
        let text = text.trim();
        match text {
            "auto" => return Ok(StageCut::Auto),
            "even" => return Ok(StageCut::Even),
            _ if text.ends_with(".json") => return Ok(StageCut::Measured(text.into())),
            _ => {}
        }
        let counts = text.split(',').map(|count| count.trim().parse());
        let counts = counts.collect::<Result<_, std::num::ParseIntError>>();
        counts.map(StageCut::Counts).map_err(|_| ParseStageCutError(text.to_owned()))
    }
}

impl std::fmt::Display for StageCut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StageCut::Auto => f.write_str("auto"),
            StageCut::Even => f.write_str("even"),
            StageCut::Counts(counts) => f.write_str(&join_counts(counts)),
            StageCut::Measured(path) => write!(f, "{}", path.display()),
        }
    }
}

impl StageCut {
    /// Returns the number of stage-cut points of each stage. `costs` are the costs of the cut points, for `auto`.
    ///
    /// # Errors
    /// All problems of the cut.
    pub(super) fn counts(
        &self,
        chain: &ChainOutline,
        stages: usize,
        costs: &[f64],
    ) -> Result<Vec<usize>, Vec<String>> {
        match self {
            StageCut::Counts(counts) => check_counts(counts, chain, stages),
            StageCut::Even => {
                Ok(optimal_counts(&layer_counts(chain), stages, Objective::SquaredStages))
            }
            StageCut::Auto => Ok(optimal_counts(costs, stages, Objective::LargestStage)),
            StageCut::Measured(path) => {
                let times = read_times(path, chain)?;
                Ok(optimal_counts(&times, stages, Objective::LargestStage))
            }
        }
    }
}

/// Returns the costs of the stage-cut points: `flops` of the fields at a path, or declared costs in layers of the first
/// stack. Without any of these, every point costs the same.
pub(super) fn point_costs(chain: &ChainOutline, flops: &dyn Fn(&str) -> f64) -> Vec<f64> {
    let points = chain.cut_points();
    let layer_flops = match points.first() {
        Some(first) if chain.has_stack() => flops(&first.path),
        _ => chain.fields.iter().map(|field| flops(&field.name)).sum::<f64>() / points.len() as f64,
    };
    let layer_flops = if layer_flops > 0.0 { layer_flops } else { 1.0 };
    let cost = |declared: Option<f64>, path: &str| {
        declared.map_or_else(|| flops(path), |cost| cost * layer_flops)
    };
    let of_point = |point: &super::CutPoint| cost(chain.fields[point.field].cost, &point.path);
    let mut costs: Vec<f64> = points.iter().map(of_point).collect();
    for (index, field) in chain.fields.iter().enumerate() {
        if chain.has_stack() && field.layers.is_none() {
            costs[chain.point_of_field(index)] += cost(field.cost, &field.name);
        }
    }
    if let Some(last_point) = costs.last_mut() {
        *last_point += chain.last.iter().map(|field| cost(field.cost, &field.name)).sum::<f64>();
    }
    if costs.iter().all(|cost| *cost == 0.0) { vec![1.0; costs.len()] } else { costs }
}

/// Returns the stage-cut points as numbers of layers: one each, and one more for the fields at either end of the chain.
fn layer_counts(chain: &ChainOutline) -> Vec<f64> {
    let mut counts = vec![1.0; chain.point_count()];
    let is_stack =
        |field: Option<&super::FieldOutline>| field.is_some_and(|field| field.layers.is_some());
    let has_front = chain.has_stack() && !is_stack(chain.fields.first());
    let has_back = chain.has_stack() && !is_stack(chain.fields.last()) || !chain.last.is_empty();
    if let (true, Some(first)) = (has_front, counts.first_mut()) {
        *first += 1.0;
    }
    if let (true, Some(last)) = (has_back, counts.last_mut()) {
        *last += 1.0;
    }
    counts
}

/// Checks that explicit counts fit the chain and the number of stages.
fn check_counts(
    counts: &[usize],
    chain: &ChainOutline,
    stages: usize,
) -> Result<Vec<usize>, Vec<String>> {
    let mut problems = Vec::new();
    let (text, points) = (join_counts(counts), chain.point_count());
    if let Some(empty) = counts.iter().position(|count| *count == 0) {
        problems.push(format!(
            "--stages: stage {empty} of {text} has no layer, and each stage needs one"
        ));
    }
    let total = counts.iter().fold(0usize, |total, count| total.saturating_add(*count));
    if counts.len() != stages || total != points {
        let counted = |count: usize, noun: &str| match count {
            1 => format!("1 {noun}"),
            _ => format!("{count} {noun}s"),
        };
        let (found, layers) = (counted(counts.len(), "stage"), counted(total, "layer"));
        let stacks = chain.stack_names();
        let has = if stacks.contains(" and ") { "have" } else { "has" };
        problems.push(format!(
            "--stages: {text} are {found} of {layers}; this mesh has {stages}, and {stacks} {has} {points}"
        ));
    }
    if problems.is_empty() { Ok(counts.to_vec()) } else { Err(problems) }
}

/// Reads the milliseconds of every stage-cut point from a JSON file.
fn read_times(path: &Path, chain: &ChainOutline) -> Result<Vec<f64>, Vec<String>> {
    let in_file = |problem: String| format!("--stages: {}: {problem}", path.display());
    let text = read_text(path).map_err(|error| vec![in_file(error.to_string())])?;
    let times: BTreeMap<String, f64> = serde_json::from_str(&text).map_err(|error| {
        let form = "it must be an object of milliseconds such as {\"blocks.0\": 1.93}";
        vec![in_file(format!("{error}; {form}"))]
    })?;
    let points = chain.cut_points();
    let mut problems = Vec::new();
    let mut report = |list: Vec<&str>, problem: &str| {
        if let Some((first, rest)) = list.split_first() {
            let more =
                if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            problems.push(in_file(format!("{problem} `{first}`{more}")));
        }
    };
    let missing = points.iter().filter(|point| !times.contains_key(&point.path));
    report(missing.map(|point| point.path.as_str()).collect(), "has no time of");
    let unknown = times.keys().filter(|name| points.iter().all(|point| point.path != **name));
    report(
        unknown.map(String::as_str).collect(),
        "has a time of fields that the model does not have:",
    );
    let is_wrong = |time: f64| !(time.is_finite() && time >= 0.0);
    let wrong = times.iter().filter(|(_, time)| is_wrong(**time));
    report(wrong.map(|(name, _)| name.as_str()).collect(), "has a negative time of");
    let total: f64 = times.values().sum();
    if problems.is_empty() && !(total.is_finite() && total > 0.0) {
        problems.push(in_file(format!("the times add up to {total} ms")));
    }
    if problems.is_empty() {
        Ok(points.iter().map(|point| times[&point.path]).collect())
    } else {
        Err(problems)
    }
}

/// Formats counts as `7,8,8,7`.
fn join_counts(counts: &[usize]) -> String {
    counts.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

//! Methods of cutting a model into stages: by cost, evenly, by counts, or by measured times.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::ChainOutline;
use super::chain::ChainPlace;
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
    /// Minimizes the FLOPs of the most expensive stage. Of the optimal cuts, one with a layer in each stage, and of
    /// these the one with the fewest layers in early stages. If it is better, or if there are more stages than layers,
    /// the fields before the stacks are a stage without layers, or those after them, or both.
    #[default]
    Auto,
    /// Distributes the layers evenly; the fields before the first stack count as one layer, and those after the last
    /// one too. They are stages of their own as for [`Auto`](Self::Auto).
    Even,
    /// Number of layers of each stage; of a chain without stacks, number of fields. The first may be 0 if the model has
    /// fields before the first stack, and the last if it has fields after the last one.
    Counts(Vec<usize>),
    /// A JSON file with the milliseconds of each [`CutPoint`](super::CutPoint), by its path:
    /// `{"blocks.0": 1.93, "blocks.1": 1.87}`. Minimizes the time of the slowest stage. The times of the first and of
    /// the last point include the fields before and after the stacks, so a stage has no layer only if there are more
    /// stages than layers.
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
    /// Returns the number of stage-cut points of each stage. `costs` are the FLOPs of the chain, for `auto`.
    ///
    /// # Errors
    /// All problems of the cut.
    pub(super) fn counts(
        &self,
        chain: &ChainOutline,
        stages: usize,
        costs: &ChainCosts,
    ) -> Result<Vec<usize>, Vec<String>> {
        match self {
            StageCut::Counts(counts) => check_counts(counts, chain, stages),
            StageCut::Even => {
                let costs = ChainCosts::of_layers(chain);
                Ok(costs.optimal_counts(chain, stages, Objective::SquaredStages))
            }
            StageCut::Auto => Ok(costs.optimal_counts(chain, stages, Objective::LargestStage)),
            StageCut::Measured(path) => {
                let costs = ChainCosts { front: 0.0, points: read_times(path, chain)?, back: 0.0 };
                Ok(costs.optimal_counts(chain, stages, Objective::LargestStage))
            }
        }
    }
}

/// Costs of a chain.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ChainCosts {
    /// Cost of the fields before the first stack.
    pub front: f64,
    /// Cost of each stage-cut point.
    pub points: Vec<f64>,
    /// Cost of the fields after the last stack, and of those that only loss and logits use.
    pub back: f64,
}

impl ChainCosts {
    /// Returns `flops` of the fields at a path, or declared costs in layers of the first stack. Without any of these,
    /// every point costs the same.
    pub fn new(chain: &ChainOutline, flops: &dyn Fn(&str) -> f64) -> ChainCosts {
        let points = chain.cut_points();
        let layer_flops = match points.first() {
            Some(first) if chain.has_stack() => flops(&first.path),
            _ => {
                let of_fields = chain.fields.iter().map(|field| flops(&field.name));
                of_fields.sum::<f64>() / points.len() as f64
            }
        };
        let layer_flops = if layer_flops > 0.0 { layer_flops } else { 1.0 };
        let cost = |declared: Option<f64>, path: &str| {
            declared.map_or_else(|| flops(path), |cost| cost * layer_flops)
        };
        let of_point = |point: &super::CutPoint| cost(chain.fields[point.field].cost, &point.path);
        let points = points.iter().map(of_point).collect();
        let mut costs = ChainCosts { front: 0.0, points, back: 0.0 };
        for (index, field) in chain.fields.iter().enumerate() {
            if chain.has_stack() && field.layers.is_none() {
                *costs.at_mut(chain.place_of_field(index)) += cost(field.cost, &field.name);
            }
        }
        costs.back += chain.last.iter().map(|field| cost(field.cost, &field.name)).sum::<f64>();
        let is_free = |cost: &f64| *cost == 0.0;
        if is_free(&costs.front) && is_free(&costs.back) && costs.points.iter().all(is_free) {
            costs.points.fill(1.0);
        }
        costs
    }

    /// Returns the costs in layers: one for each stage-cut point, and one for the fields at either end of the chain.
    fn of_layers(chain: &ChainOutline) -> ChainCosts {
        let one_if = |exists: bool| if exists { 1.0 } else { 0.0 };
        ChainCosts {
            front: one_if(chain.has_front()),
            points: vec![1.0; chain.point_count()],
            back: one_if(chain.has_back() || !chain.last.is_empty()),
        }
    }

    fn at_mut(&mut self, place: ChainPlace) -> &mut f64 {
        match place {
            ChainPlace::Front => &mut self.front,
            ChainPlace::Point(point) => &mut self.points[point],
            ChainPlace::Back => &mut self.back,
        }
    }

    /// Returns the cost of each stage of a cut.
    pub fn of_stages(&self, counts: &[usize]) -> Vec<f64> {
        let mut points = self.points.iter();
        let mut costs: Vec<f64> =
            counts.iter().map(|count| points.by_ref().take(*count).sum()).collect();
        if let Some(first) = costs.first_mut() {
            *first += self.front;
        }
        if let Some(last) = costs.last_mut() {
            *last += self.back;
        }
        costs
    }

    /// Returns the number of stage-cut points of each stage that minimizes the objective. The ends of the chain are
    /// stages without points only if no other cut is as good.
    ///
    /// # Panics
    /// If there are no stages, or more than the chain allows.
    pub fn optimal_counts(
        &self,
        chain: &ChainOutline,
        stages: usize,
        objective: Objective,
    ) -> Vec<usize> {
        let mut best: Option<(f64, Vec<usize>)> = None;
        for (front, back) in [(false, false), (false, true), (true, false), (true, true)] {
            let inner = stages.saturating_sub(usize::from(front) + usize::from(back));
            let exists = (!front || chain.has_front()) && (!back || chain.has_back());
            if !exists || !(1..=self.points.len()).contains(&inner) {
                continue;
            }
            let (counts, cost) = self.counts_with_ends((front, back), inner, objective);
            if best.as_ref().is_none_or(|(lowest, _)| cost < *lowest) {
                best = Some((cost, counts));
            }
        }
        best.expect("as many stages as the chain allows").1
    }

    /// Returns the optimal cut into `inner` stages with points, and its objective. Each end of the chain is one more
    /// stage, or part of the stage beside it.
    fn counts_with_ends(
        &self,
        (front, back): (bool, bool),
        inner: usize,
        objective: Objective,
    ) -> (Vec<usize>, f64) {
        let mut points = self.points.clone();
        if let (false, Some(first)) = (front, points.first_mut()) {
            *first += self.front;
        }
        if let (false, Some(last)) = (back, points.last_mut()) {
            *last += self.back;
        }
        let (mut counts, mut cost) = optimal_counts(&points, inner, objective);
        if front {
            counts.insert(0, 0);
            cost = objective.combine_costs(objective.of_stage(self.front), cost);
        }
        if back {
            counts.push(0);
            cost = objective.combine_costs(cost, objective.of_stage(self.back));
        }
        (counts, cost)
    }
}

/// Checks that explicit counts fit the chain and the number of stages.
fn check_counts(
    counts: &[usize],
    chain: &ChainOutline,
    stages: usize,
) -> Result<Vec<usize>, Vec<String>> {
    let mut problems = Vec::new();
    let (text, points) = (join_counts(counts), chain.point_count());
    let may_be_empty = |stage: usize| {
        stage == 0 && chain.has_front() || stage + 1 == counts.len() && chain.has_back()
    };
    let mut empty = counts.iter().enumerate().filter(|(_, count)| **count == 0);
    if let Some((empty, _)) = empty.find(|(stage, _)| !may_be_empty(*stage)) {
        problems.push(format!(
            "--stages: stage {empty} of {text} has no layer, and each stage needs one{}",
            chain.describe_exceptions()
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

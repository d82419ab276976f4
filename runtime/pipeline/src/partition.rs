//! Optimal partitions of a sequence of costs into stages.

/// Function of the costs of all stages that an optimal partition minimizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Objective {
    /// The largest cost of a stage, which determines the time of a pipeline step.
    LargestStage,
    /// The sum of the squared costs of stages, which is smallest if they are as even as possible. The costs are whole
    /// numbers, so that sums are exact.
    SquaredStages,
}

impl Objective {
    /// Returns the contribution of one stage.
    pub fn of_stage(self, cost: f64) -> f64 {
        match self {
            Objective::LargestStage => cost,
            Objective::SquaredStages => cost * cost,
        }
    }

    /// Returns the objective of the stages of `first` and `second` together.
    pub fn combine_costs(self, first: f64, second: f64) -> f64 {
        match self {
            Objective::LargestStage => first.max(second),
            Objective::SquaredStages => first + second,
        }
    }
}

/// Returns the number of elements of `costs` in each of `stages` consecutive stages, none of them empty, that minimizes
/// the objective: among optimal partitions the lexicographically smallest, which has the fewest layers in early stages,
/// where 1F1B keeps the most micro-batches. Returns the objective, too.
///
/// # Panics
/// If there are no stages, or fewer costs than stages. The sum of the costs must be finite.
pub(super) fn optimal_counts(
    costs: &[f64],
    stages: usize,
    objective: Objective,
) -> (Vec<usize>, f64) {
    assert!((1..=costs.len()).contains(&stages), "{} costs in {stages} stages", costs.len());
    let best = best_of_rest(costs, stages, objective);
    let optimum = best[stages][0];
    let mut counts = Vec::with_capacity(stages);
    let (mut start, mut so_far) = (0, None);
    for rest in (0..stages).rev() {
        let (mut stage_cost, mut end) = (0.0, start);
        let total = loop {
            stage_cost += costs[end];
            end += 1;
            let stage = objective.of_stage(stage_cost);
            let total = so_far.map_or(stage, |so_far| objective.combine_costs(so_far, stage));
            if objective.combine_costs(total, best[rest][end]) <= optimum {
                break total;
            }
        };
        so_far = Some(total);
        counts.push(end - start);
        start = end;
    }
    (counts, optimum)
}

/// Returns the objective of the costs from index `i` on in `s` stages, as `[s][i]`: infinite if they do not fit.
fn best_of_rest(costs: &[f64], stages: usize, objective: Objective) -> Vec<Vec<f64>> {
    let count = costs.len();
    let mut best = vec![vec![f64::INFINITY; count + 1]; stages + 1];
    best[0][count] = 0.0;
    for rest in 1..=stages {
        for start in 0..count {
            let mut stage_cost = 0.0;
            for end in start + 1..=count {
                stage_cost += costs[end - 1];
                let total =
                    objective.combine_costs(objective.of_stage(stage_cost), best[rest - 1][end]);
                best[rest][start] = best[rest][start].min(total);
            }
        }
    }
    best
}

//! Estimates of candidates that are not simulated, few enough to be drawn.

use std::collections::HashSet;

use serde::Serialize;

use super::candidate::Candidate;
use super::estimate::Estimate;
use super::planned_run::PlannedRun;

/// Columns and rows of a grid; one point is kept in each cell.
const GRID: [f64; 2] = [36.0, 20.0];
/// Most memory that is drawn over that of a GPU, and longest step over the fastest one.
const RANGE: [f64; 2] = [2.0, 4.0];

/// The estimate of a candidate, and the reason why it was not simulated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EstimatedPoint {
    pub memory_bytes: u64,
    pub step_s: f64,
    pub left_out: &'static str,
}

/// Returns some of the estimates, of each reason. `usable` is the memory that estimates may need, of `memory` bytes.
pub fn estimated_points(
    estimated: &[(Estimate, Candidate)],
    plans: &[PlannedRun],
    [memory, usable]: [f64; 2],
) -> Vec<EstimatedPoint> {
    let fits = |estimate: &&Estimate| estimate.bytes <= usable;
    let times = estimated.iter().map(|(estimate, _)| estimate).filter(fits);
    let best = times.map(|estimate| estimate.seconds).fold(f64::INFINITY, f64::min);
    let is_simulated = |candidate: &Candidate| {
        let is_eager = candidate.is_eager;
        plans.iter().any(|plan| Candidate { is_eager, ..plan.candidate } == *candidate)
    };
    let mut cells = HashSet::new();
    let mut points = Vec::new();
    for (Estimate { seconds, bytes }, candidate) in estimated {
        let (x, y) = (bytes / memory / RANGE[0], seconds / best / RANGE[1]);
        let left_out = match () {
            () if *bytes > usable => "does not fit",
            () if *seconds > 2.0 * best => "slower than twice the best",
            () => "estimated behind the best",
        };
        let cell = ((x * GRID[0]) as usize, (y * GRID[1]) as usize, left_out);
        if x < 1.0 && y < 1.0 && !is_simulated(candidate) && cells.insert(cell) {
            // An estimate has fewer digits than a number.
            let step_s = (seconds * 1e6).round() / 1e6;
            points.push(EstimatedPoint { memory_bytes: *bytes as u64, step_s, left_out });
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::MeshShape;
    use crate::nn::RecomputeOverride;

    #[test]
    fn each_cell_and_reason_has_a_point() {
        let (zero, schedule, is_eager) = Default::default();
        let (mesh, recompute) = (MeshShape::SINGLE, RecomputeOverride::Off);
        let of = |(seconds, bytes): (f64, f64)| {
            let micro_batches = bytes as usize;
            let candidate = Candidate { mesh, zero, schedule, micro_batches, recompute, is_eager };
            (Estimate { seconds, bytes }, candidate)
        };
        let estimates =
            [(1.0, 50.0), (1.001, 50.1), (3.0, 60.0), (0.5, 150.0), (1.5, 250.0), (5.0, 9.0)]
                .map(of);
        let points = estimated_points(&estimates, &[], [100.0, 94.0]);
        let reasons: Vec<&str> = points.iter().map(|point| point.left_out).collect();
        let expected = ["estimated behind the best", "slower than twice the best", "does not fit"];
        assert_eq!(reasons, expected);
        let run = crate::train::simulate::SimulatedRun::default();
        let simulated =
            PlannedRun { candidate: Candidate { is_eager: true, ..estimates[2].1 }, run };
        let points = estimated_points(&estimates, &[simulated], [100.0, 94.0]);
        assert_eq!(points.len(), 2);
    }
}

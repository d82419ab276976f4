//! Bubbles and live micro-batches of schedules, from their own simulation.

use std::collections::HashMap;

use crate::schedule::{Costs, ScheduleKind, lower_schedule, peaks, simulate};

/// Figures of a schedule, in chunks of equal cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScheduleFigures {
    /// Time of a step over the time that a rank computes.
    pub slowdown: f64,
    /// Chunks whose activations the fullest rank keeps.
    pub live: f64,
}

/// Schedules that have been simulated.
#[derive(Default)]
pub struct Bubbles(HashMap<(ScheduleKind, usize, usize, usize), ScheduleFigures>);

impl Bubbles {
    /// Returns the figures of a schedule on `pp` ranks of `stages` stages each.
    ///
    /// All micro-batches beyond a few of each rank are alike, so the time of many follows from two smaller numbers.
    pub fn of(
        &mut self,
        kind: ScheduleKind,
        pp: usize,
        stages: usize,
        micro_batches: usize,
    ) -> Option<ScheduleFigures> {
        let key = (kind, pp, stages, micro_batches);
        if let Some(known) = self.0.get(&key) {
            return Some(*known);
        }
        // Interleaved schedules go in rounds of `pp` micro-batches.
        let steady = 2 * pp + micro_batches % pp;
        let figures = if micro_batches <= steady {
            figures_of(kind, pp, stages, micro_batches)?
        } else {
            let few = self.of(kind, pp, stages, steady)?;
            let work = |count: usize| (3 * stages * count) as f64;
            let idle = (few.slowdown - 1.0) * work(steady);
            ScheduleFigures { slowdown: 1.0 + idle / work(micro_batches), ..few }
        };
        self.0.insert(key, figures);
        Some(figures)
    }
}

fn figures_of(
    kind: ScheduleKind,
    pp: usize,
    stages: usize,
    micro_batches: usize,
) -> Option<ScheduleFigures> {
    let schedule = kind.generate(pp, stages, micro_batches).ok()?;
    // Half of an operand of a weight gradient is counted: the gradient of its output replaces other activations.
    let live = peaks(&schedule).into_iter();
    let live = live.map(|peak| (peak.live + peak.with_pending_weights) as f64 / 2.0);
    let live = live.fold(0.0, f64::max);
    let simulation = simulate(&lower_schedule(&schedule, usize::MAX), Costs::default()).ok()?;
    let work = (3 * stages * micro_batches) as f64;
    Some(ScheduleFigures { slowdown: simulation.makespan() / work, live })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GPipe's bubble of `p - 1` of `m + p - 1`.
    #[test]
    fn bubbles_follow_the_formula() {
        let mut bubbles = Bubbles::default();
        for (pp, micro_batches) in [(4, 4), (4, 8), (4, 100), (16, 16), (8, 1000)] {
            let figures = bubbles.of(ScheduleKind::GPipe, pp, 1, micro_batches).unwrap();
            let expected = (micro_batches + pp - 1) as f64 / micro_batches as f64;
            assert!(
                (figures.slowdown - expected).abs() < 1e-9,
                "{pp} {micro_batches}: {figures:?}"
            );
            let figures = bubbles.of(ScheduleKind::OneFOneB, pp, 1, micro_batches).unwrap();
            assert_eq!(figures.live, pp.min(micro_batches) as f64);
        }
    }

    #[test]
    fn interleaved_bubbles_are_smaller() {
        let mut bubbles = Bubbles::default();
        let mut of = |stages| bubbles.of(ScheduleKind::Interleaved, 4, stages, 8).unwrap().slowdown;
        assert!(of(4) < of(2) && of(2) < 1.0 + 3.0 / 8.0);
    }
}

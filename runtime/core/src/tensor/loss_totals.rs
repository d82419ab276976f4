//! Totals of the losses whose gradients are accumulated: counts, announced counts, and the sum that ranks compare.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::context::Rank;
use crate::layout::AxisSet;
use crate::promise::LossSum;

use super::counting::Counting;
use super::step_count::AnnouncedCount;
use super::terms::Term;

/// Totals of the losses of a step.
#[derive(Default)]
pub(super) struct LossTotals {
    /// Elements that the losses count on this rank, by the axes over which the counts are still to be summed. It is 1
    /// in all if losses have weights, as each is divided by its own count.
    pub counts: BTreeMap<AxisSet, f64>,
    /// The sum that ranks compare when the gradients are reduced.
    pub sum: LossSum,
    /// Axes along which one rank computes the losses, over which the counts are summed, too.
    along: AxisSet,
    has_weights: bool,
    /// Counts that are announced for the step.
    announced: Vec<Rc<AnnouncedCount>>,
}

impl LossTotals {
    /// Creates the totals of losses without weights that count `count` elements, and whose sums are not compared.
    pub fn of_count(axes: AxisSet, along: AxisSet, count: f64) -> LossTotals {
        let counts = BTreeMap::from([(axes.union(along), count)]);
        LossTotals { counts, along, ..LossTotals::default() }
    }

    /// Adds the elements of a loss.
    ///
    /// # Panics
    /// If one loss of the step has a weight, and another has none.
    #[track_caller]
    pub fn add(&mut self, term: &Term) {
        let has_weight = !matches!(term.counting, Counting::Pooled);
        assert!(
            self.counts.is_empty() || has_weight == self.has_weights,
            "one loss of the step has a weight, and another has none, which would be divided by the count of all \
             losses: give each of them a weight, `loss.weighted_over(1.0, &count)`, or none"
        );
        self.has_weights = has_weight;
        if has_weight {
            self.counts.insert(AxisSet::NONE, 1.0);
        } else {
            *self.counts.entry(term.axes.union(self.along)).or_default() += term.elements;
        }
        if let Counting::OfStep(count) = &term.counting {
            count.add_counted(term.elements);
            self.announced.push(Rc::clone(count));
        }
    }

    /// Returns this rank's share of the number of elements that the losses count on all ranks.
    pub fn share_of_count(&self, rank: &Rank) -> f64 {
        self.counts.iter().map(|(axes, count)| rank.share_of(*axes, *count)).sum()
    }

    /// Returns what ranks compare: the sum, with its count.
    pub fn compared(&self) -> LossSum {
        let add = |sum: LossSum, (axes, count): (&AxisSet, &f64)| sum.with_count(*axes, *count);
        self.counts.iter().fold(self.sum, add)
    }

    /// Checks that the losses have counted what is announced.
    #[track_caller]
    pub fn check_announced(&self) {
        for count in &self.announced {
            count.check_complete();
        }
    }
}

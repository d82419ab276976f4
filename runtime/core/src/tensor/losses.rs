//! Losses of different shapes that are differentiated together.

use std::collections::BTreeMap;
use std::panic::Location;
use std::rc::Rc;

use crate::autograd::{LossFactor, NodeId, Value};
use crate::context::{LossSum, Rank};
use crate::layout::AxisSet;

use super::metric::read_number;
use super::step_count::AnnouncedCount;

/// Losses of different shapes that are differentiated together: the mean over everything that any of them counts.
#[must_use = "losses do nothing until `.backward()`"]
pub struct Losses {
    rank: Rank,
    /// The recorded operations that have computed the sums.
    roots: Vec<NodeId>,
    /// Factor of the sums.
    factor: LossFactor,
    totals: LossTotals,
}

/// Counts and sums of losses.
#[derive(Debug, Default)]
pub struct LossTotals {
    /// Elements that the losses count on this rank, by the axes over which the counts are still to be summed.
    pub(super) counts: BTreeMap<AxisSet, u64>,
    /// The sum that ranks compare when the gradients are reduced.
    pub(super) sum: LossSum,
    /// Counts that are announced for the step; losses themselves have none.
    announced: Vec<Rc<AnnouncedCount>>,
}

impl LossTotals {
    /// Creates the totals of losses that count `count` elements, and whose sums are not compared.
    pub(super) fn of_count(axes: AxisSet, count: u64) -> LossTotals {
        LossTotals { counts: BTreeMap::from([(axes, count)]), ..LossTotals::default() }
    }

    /// Adds the totals of later losses.
    ///
    /// # Panics
    /// If these are totals of losses with weights, and `later` has totals of losses without.
    #[track_caller]
    pub(super) fn add(&mut self, later: LossTotals) {
        check_alike(later.counts.is_empty() || self.announced.is_empty());
        for (axes, count) in later.counts {
            *self.counts.entry(axes).or_default() += count;
        }
        self.sum = self.sum.with(later.sum);
    }

    /// Begins the totals of losses with weights, each divided by its own count, if there are none yet. Returns true
    /// then.
    ///
    /// # Panics
    /// If these are totals of losses without weights.
    #[track_caller]
    pub(super) fn begin_weighted(&mut self) -> bool {
        let is_first = self.announced.is_empty();
        if is_first {
            check_alike(self.counts.is_empty());
            self.add(LossTotals::of_count(AxisSet::NONE, 1));
        }
        is_first
    }

    /// Adds the elements of losses to the counts that are announced for the step, which are checked after the last of
    /// them.
    pub(super) fn announce(&mut self, counts: Vec<(Rc<AnnouncedCount>, u64)>) {
        for (count, elements) in counts {
            count.add_counted(elements);
            self.announced.push(count);
        }
    }

    /// Checks that losses have counted what is announced.
    #[track_caller]
    pub(super) fn check_announced(&self) {
        for count in &self.announced {
            count.check_complete();
        }
    }

    /// Returns the totals with `along` added to the axes over which the counts are summed.
    #[doc(hidden)]
    pub fn summed_over(self, along: AxisSet) -> LossTotals {
        let counts = self.counts.into_iter();
        LossTotals { counts: counts.map(|(axes, n)| (axes.union(along), n)).collect(), ..self }
    }
}

/// Checks that losses of a step have weights, or none has.
#[track_caller]
fn check_alike(are_alike: bool) {
    assert!(
        are_alike,
        "one loss of the step has a weight, and another has none, which would be divided by the count of all losses: \
         give each of them a weight, `loss.weighted_over(1.0, &count)`, or none"
    );
}

impl Losses {
    /// Creates the losses that consist of one: a sum over `count` elements on this rank, still to be summed over
    /// `axes`.
    #[track_caller]
    pub(super) fn of_sum(sum: &Value, axes: AxisSet, count: u64) -> Losses {
        let compared = compared_sum(sum, axes, Location::caller());
        let totals = LossTotals { sum: compared, ..LossTotals::of_count(axes, count) };
        Losses::of_one_loss(sum, LossFactor::ONE, totals)
    }

    /// Creates the losses that consist of one with a weight, which is divided by its count already: the sum, which has
    /// the factor `factor`, and what ranks compare of it.
    #[track_caller]
    pub(super) fn of_weighted_sum(sum: &Value, factor: f32, compared: LossSum) -> Losses {
        let totals = LossTotals { sum: compared, ..LossTotals::default() };
        Losses::of_one_loss(sum, LossFactor::Same(factor), totals)
    }

    #[track_caller]
    fn of_one_loss(sum: &Value, factor: LossFactor, totals: LossTotals) -> Losses {
        let roots = sum.recorded_node().into_iter().collect();
        Losses { rank: sum.rank().with_whole_batch(), roots, factor, totals }
    }

    /// Returns all losses of both.
    #[track_caller]
    pub(super) fn merge_losses(mut self, other: Losses) -> Losses {
        self.rank.check_same(&other.rank);
        self.roots.extend(other.roots);
        self.factor = self.factor.and(other.factor);
        self.totals.add(other.totals);
        self
    }

    pub(super) fn rank(&self) -> &Rank {
        &self.rank
    }

    /// Returns the recorded operations that have computed the sums, the factor of these, and their totals.
    #[doc(hidden)]
    pub fn into_parts(self) -> (Vec<NodeId>, LossFactor, LossTotals) {
        (self.roots, self.factor, self.totals)
    }
}

/// Returns the sum of a loss that is differentiated at `line`, which ranks compare: it is the same on all ranks with
/// equal positions along `axes`, unless their control flow or a user-defined function depends on the rank.
///
/// Ranks on devices may use different kernels, and of a sum of both signs rounding may be all that is left; there it
/// would be waited for, too.
#[track_caller]
pub(super) fn compared_sum(
    sum: &Value,
    axes: AxisSet,
    line: &'static Location<'static>,
) -> LossSum {
    match sum.rank().allocator().device() {
        None => LossSum::of_one_loss(read_number(&sum.compute().data), axes, line),
        Some(_) => LossSum::default(),
    }
}

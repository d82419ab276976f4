//! Losses of different shapes that are differentiated together.

use std::collections::BTreeMap;

use crate::autograd::NodeId;
use crate::context::{LossSum, Rank};
use crate::layout::AxisSet;

/// Losses of different shapes that are differentiated together: the mean over everything that any of them counts.
#[must_use = "losses do nothing until `.backward()`"]
pub struct Losses {
    rank: Rank,
    /// The recorded operations that have computed the sums.
    roots: Vec<NodeId>,
    totals: LossTotals,
}

/// Counts and sums of losses.
#[derive(Debug, Default)]
pub(crate) struct LossTotals {
    /// Elements that the losses count on this rank, by the axes over which the counts are still to be summed.
    pub(super) counts: BTreeMap<AxisSet, u64>,
    /// The sum that ranks compare when the gradients are reduced.
    pub(super) sum: LossSum,
}

impl LossTotals {
    /// Creates the totals of losses that count `count` elements, and whose sums are not compared.
    pub(super) fn of_count(axes: AxisSet, count: u64) -> LossTotals {
        LossTotals { counts: BTreeMap::from([(axes, count)]), sum: LossSum::default() }
    }

    /// Adds those of later losses.
    pub(super) fn add(&mut self, later: LossTotals) {
        for (axes, count) in later.counts {
            *self.counts.entry(axes).or_default() += count;
        }
        self.sum = self.sum.with(later.sum);
    }

    /// Returns the totals with `along` added to the axes over which the counts are summed.
    pub(crate) fn summed_over(self, along: AxisSet) -> LossTotals {
        let counts = self.counts.into_iter();
        LossTotals { counts: counts.map(|(axes, n)| (axes.union(along), n)).collect(), ..self }
    }
}

impl Losses {
    /// Creates the losses that consist of one: a sum computed by `root`, over `count` elements on this rank.
    pub(super) fn of_one_loss(
        rank: Rank,
        root: Option<NodeId>,
        axes: AxisSet,
        count: u64,
        sum: LossSum,
    ) -> Losses {
        let roots = root.into_iter().collect();
        Losses { rank, roots, totals: LossTotals { sum, ..LossTotals::of_count(axes, count) } }
    }

    /// Returns all losses of both.
    #[track_caller]
    pub(super) fn merge_losses(mut self, other: Losses) -> Losses {
        self.rank.check_same(&other.rank);
        self.roots.extend(other.roots);
        self.totals.add(other.totals);
        self
    }

    pub(super) fn rank(&self) -> &Rank {
        &self.rank
    }

    /// Returns the recorded operations that have computed the sums, and their totals.
    pub(crate) fn into_parts(self) -> (Vec<NodeId>, LossTotals) {
        (self.roots, self.totals)
    }
}

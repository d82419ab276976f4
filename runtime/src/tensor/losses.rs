//! Losses of different shapes that are differentiated together.

use std::collections::BTreeMap;

use crate::autograd::NodeId;
use crate::context::Rank;
use crate::layout::AxisSet;

/// Losses of different shapes that are differentiated together: the mean over everything that any of them counts.
#[must_use = "losses do nothing until `.backward()`"]
pub struct Losses {
    rank: Rank,
    /// The recorded operations that have computed the sums.
    roots: Vec<NodeId>,
    /// Elements that the losses count on this rank, by the axes over which the counts are still to be summed.
    counts: BTreeMap<AxisSet, u64>,
}

impl Losses {
    /// Creates the losses that consist of one: a sum computed by `root`, over `count` elements on this rank.
    pub(super) fn of_one_loss(
        rank: Rank,
        root: Option<NodeId>,
        axes: AxisSet,
        count: u64,
    ) -> Losses {
        let roots = root.into_iter().collect();
        Losses { rank, roots, counts: BTreeMap::from([(axes, count)]) }
    }

    /// Returns all losses of both.
    #[track_caller]
    pub(super) fn merge_losses(mut self, other: Losses) -> Losses {
        self.rank.check_same(&other.rank);
        self.roots.extend(other.roots);
        for (axes, count) in other.counts {
            *self.counts.entry(axes).or_default() += count;
        }
        self
    }

    pub(super) fn rank(&self) -> &Rank {
        &self.rank
    }

    /// Returns the recorded operations that have computed the sums, and the elements that they count.
    pub(crate) fn into_parts(self) -> (Vec<NodeId>, BTreeMap<AxisSet, u64>) {
        (self.roots, self.counts)
    }
}

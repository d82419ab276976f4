//! The operations that a backward runs: those that a gradient reaches.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::context::{BoundaryId, Rank, StagedForwardId};
use meshwright_backend::{Buffer, Category};

use super::TapeNode;
use super::gradients::TapeGradients;

/// The operations of a tape that a backward runs.
pub(super) struct ReachedNodes {
    is_reached: Vec<bool>,
    /// Results of stages, which have a gradient of zeros if none arrives.
    is_filled: Vec<bool>,
}

/// A forward pass of a model with stages.
struct StagedForward {
    /// Last boundary.
    last: BoundaryId,
    /// True if a gradient reaches it.
    is_reached: bool,
}

impl ReachedNodes {
    /// Finds the operations of `nodes` that the initial gradients reach.
    ///
    /// The backward of a pipeline stage runs if a loss depends on the model, with zeros for results that no loss
    /// depends on, because the stage before cannot know. That changes no gradient, but an auxiliary loss in the stage
    /// has one. So with auxiliary losses, each result between two elements of a model with stages is reached if its
    /// last result is, on any number of ranks.
    pub(super) fn find(nodes: &[TapeNode], gradients: &TapeGradients<'_>) -> ReachedNodes {
        let has_auxiliary_loss = nodes.iter().any(|node| node.has_auxiliary_loss);
        let mut forwards: HashMap<StagedForwardId, StagedForward> = HashMap::new();
        let has_gradient = gradients.slots.iter().map(|(_, gradient)| gradient.is_some());
        let mut is_reached: Vec<bool> = has_gradient.collect();
        let mut is_filled = vec![false; nodes.len()];
        for (index, node) in nodes.iter().enumerate().rev() {
            if let Some((boundary, _)) = node.boundary.filter(|_| has_auxiliary_loss) {
                let new = StagedForward { last: boundary, is_reached: false };
                let forward = forwards.entry(boundary.forward).or_insert(new);
                forward.is_reached |= is_reached[index];
                is_filled[index] = forward.is_reached && boundary != forward.last;
                is_reached[index] |= is_filled[index];
            }
            if is_reached[index] {
                // One that is not found belongs to another tape, which the operation reports.
                let sources = node.dependencies.sources.iter();
                let sources = sources.filter_map(|serial| gradients.find(*serial));
                sources.for_each(|source| is_reached[source] = true);
            }
        }
        ReachedNodes { is_reached, is_filled }
    }

    /// Suspends the uses of the other operations of `nodes`. Which of them are still recorded depends on the tensors
    /// that this rank has kept, and the gradients have to be complete after the same operations on every rank.
    pub(super) fn suspend_others(&self, nodes: &[TapeNode]) {
        let others = nodes.iter().zip(&self.is_reached).filter(|(_, is_reached)| !**is_reached);
        others.for_each(|(node, _)| node.dependencies.suspend_uses());
    }

    /// Returns the gradient of `node`, the operation with this index, to which none has arrived: zeros if it is the
    /// result of a stage that is run.
    pub(super) fn zeros_at_boundary(
        &self,
        rank: &Rank,
        index: usize,
        node: &TapeNode,
    ) -> Option<Arc<Buffer>> {
        let (_, len) = node.boundary.filter(|_| self.is_filled[index])?;
        let dtype = rank.compute_dtype();
        Some(Arc::new(rank.allocator().zeros(dtype, len, Category::Activations)))
    }
}

/// The operations that a later backward can reach, found in reverse order.
pub(super) struct ReachableNodes {
    /// True if a backward runs all stages of a forward pass, as [`ReachedNodes::find`] explains.
    runs_all_stages: bool,
    /// Forward passes with a result that can be reached.
    forwards: HashSet<StagedForwardId>,
}

impl ReachableNodes {
    pub(super) fn new(runs_all_stages: bool) -> ReachableNodes {
        ReachableNodes { runs_all_stages, forwards: HashSet::new() }
    }

    /// Returns true if a backward can reach `node`, before which all later operations were asked for.
    pub(super) fn contains(&mut self, node: &TapeNode) -> bool {
        let forward = node.boundary.filter(|_| self.runs_all_stages);
        let forward = forward.map(|(boundary, _)| boundary.forward);
        let is_reachable =
            node.is_referenced() || forward.is_some_and(|forward| self.forwards.contains(&forward));
        self.forwards.extend(forward.filter(|_| is_reachable));
        is_reachable
    }
}

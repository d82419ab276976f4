//! Gradients of a step that consists of forward passes whose backward runs later.

use std::panic::Location;
use std::rc::Rc;

use crate::context::Rank;
use crate::fsdp::BackwardPass;
use crate::layout::{AxisSet, Dims};

use super::losses::LossTotals;
use super::{Accumulating, Gradients, Pending};

impl Gradients<Accumulating> {
    /// Begins the gradients of a step that consists of [`ForwardPass`](super::ForwardPass)es: the backward of each adds
    /// to them.
    #[track_caller]
    pub fn of_passes(rank: &Rank) -> Gradients<Accumulating> {
        Gradients::of_backward(rank.with_whole_batch(), None, Location::caller())
    }

    /// Begins the gradients of a step whose losses, shaped `S`, are computed by one rank along the axes `along` only.
    #[track_caller]
    #[doc(hidden)]
    pub fn of_stages<S: Dims>(rank: &Rank, along: AxisSet) -> Gradients<Accumulating> {
        let mut gradients = Gradients::of_passes(rank);
        gradients.add_totals(LossTotals::of_count(S::VARIES.union(along), 0));
        gradients
    }

    /// Returns the gradients after the last [`ForwardPass`](super::ForwardPass), with which all units were complete.
    ///
    /// # Panics
    /// If a unit was listed as complete with no pass, so that its gradient would not be reduced over the ranks, weight
    /// gradients were deferred and not computed, or a weighted loss has not counted what is announced.
    #[track_caller]
    pub fn complete(self) -> Gradients<Pending> {
        self.pass.check_valid();
        self.pass.check_no_deferred();
        self.pass.check_complete();
        self.totals.check_announced();
        self.with_state()
    }

    /// Adds the totals of further losses.
    #[track_caller]
    #[doc(hidden)]
    pub fn add_totals(&mut self, totals: LossTotals) {
        self.totals.add(totals);
    }

    /// Returns the backward pass whose units hold the gradients.
    #[doc(hidden)]
    pub fn backward_pass(&self) -> &Rc<BackwardPass> {
        &self.pass
    }
}

//! Squares of the gradient of each data rank's first micro-batch: one of the two norms from which the gradient noise
//! scale follows.

use std::cell::Cell;

use crate::context::Rank;
use crate::layout::AxisSet;
use meshwright_backend::View;

use super::super::param_entry::ParamEntry;
use super::Unit;

/// The sum of the squares over the units of a rank, in this step.
#[derive(Default)]
struct FirstSquares(Cell<f64>);

impl Rank {
    /// Removes and returns the sum of the squares of this rank's part of the gradient of its first micro-batch.
    pub(crate) fn take_first_squares(&self) -> f64 {
        self.session_state::<FirstSquares>().0.take()
    }
}

impl Unit {
    /// Adds the squares of the gradient that the unit holds, of one micro-batch on this rank. Of the ranks that hold
    /// the same values, the first one counts them. Ranks that read other data have other gradients.
    pub(super) fn add_first_squares(&self) {
        let rank = &self.rank;
        let mut whole = self.gradient.whole.borrow_mut();
        // No operation has contributed.
        let Some(whole) = &mut *whole else { return };
        let params = self.entries();
        for param in params.iter().filter(|param| !param.has_gradient.get()) {
            // What a later micro-batch overwrites.
            whole.view_mut().slice(param.range()).clear();
        }
        let replicas = AxisSet::ALL.difference(self.sum_axes());
        let is_counted = |param: &ParamEntry| rank.position(replicas.difference(param.varies)) == 0;
        let sums = self.sums_over_further_axes(whole.view());
        let mut parts: Vec<View<'_>> = Vec::new();
        for param in params.iter().filter(|param| is_counted(param)) {
            let of_sum = sums.iter().find_map(|(sum, places)| {
                let (range, start) = places.iter().find(|(range, _)| *range == param.range())?;
                Some(sum.view().slice(*start..*start + range.len()))
            });
            parts.push(of_sum.unwrap_or_else(|| whole.view().slice(param.range())));
        }
        let squares = &rank.session_state::<FirstSquares>().0;
        squares.set(squares.get() + rank.backend().sum_squares_of(&parts));
    }
}

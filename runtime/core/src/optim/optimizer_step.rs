//! The inputs of one optimizer step.

use std::ops::Range;

use crate::tensor::{Gradients, Rank, Summed, Unit};
use meshwright_backend::{DType, StateRounding};

use super::Group;

/// Inputs of one optimizer step that are the same for all parameters.
pub struct OptimizerStep<'a> {
    rank: &'a Rank,
    lr: f64,
    number: u64,
    grad_scale: f32,
}

impl<'a> OptimizerStep<'a> {
    /// Creates the inputs of step `number`, from 1.
    pub(super) fn new<State: Summed>(
        gradients: &'a Gradients<State>,
        lr: f64,
        number: u64,
    ) -> OptimizerStep<'a> {
        OptimizerStep { rank: gradients.rank(), lr, number, grad_scale: gradients.gradient_scale() }
    }

    /// Creates the inputs of step `number` of a check.
    pub(super) fn made_up(rank: &'a Rank, number: u64) -> OptimizerStep<'a> {
        OptimizerStep { rank, lr: 0.01, number, grad_scale: 0.5 }
    }

    /// Returns the context of this rank.
    pub fn rank(&self) -> &'a Rank {
        self.rank
    }

    /// Returns the learning rate, without the factor of a group; see [`FlatSlice::lr`](super::FlatSlice::lr).
    pub fn lr(&self) -> f64 {
        self.lr
    }

    /// Returns the rounding of the states of a range of the flat buffers of a unit; empty if states are f32.
    pub(super) fn state_rounding(&self, unit: &Unit, range: &Range<usize>) -> Vec<StateRounding> {
        if self.rank.state_dtype() == DType::F32 {
            return Vec::new();
        }
        unit.state_rounding("optimizer state", range, &[self.number])
    }

    /// Returns the learning rate of a group.
    pub(super) fn lr_of(&self, group: Group) -> f64 {
        self.lr * group.lr_scale
    }

    /// Returns the number of this step, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the factor on gradients in [`SliceViews`](super::SliceViews): clipping, and the mean over tokens.
    pub fn grad_scale(&self) -> f32 {
        self.grad_scale
    }
}

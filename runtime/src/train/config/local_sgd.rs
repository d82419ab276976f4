//! `--local-steps`: replicas along `dp` that train apart, and are synchronized by an outer optimizer.

use serde::Serialize;

use crate::optim::OuterSgdOptions;

/// The defaults of DiLoCo for the outer learning rate and momentum, and of streaming DiLoCo for alpha.
pub(super) const OUTER: OuterSgdOptions =
    OuterSgdOptions { lr: 0.7, momentum: 0.9, fragments: 1, alpha: 0.5 };

/// `--local-steps` and the settings of the outer optimizer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct LocalSgdConfig {
    /// `--local-steps`: steps between two synchronizations of the replicas.
    pub steps: u64,
    /// `--outer-lr`.
    pub outer_lr: f64,
    /// `--outer-momentum`.
    pub outer_momentum: f64,
    /// `--fragments`: parts of the model that are synchronized in turn, each once in a round.
    pub fragments: u64,
    /// `--fragment-delay`: steps from the start of a synchronization to its end.
    pub delay: u64,
    /// `--fragment-alpha`, if it is given: see [`alpha`](LocalSgdConfig::alpha).
    pub alpha: Option<f64>,
}

impl LocalSgdConfig {
    /// Returns true if a round of the replicas ends after `steps` steps of the run: each fragment was synchronized in
    /// it, and none is being synchronized.
    pub fn synchronizes_after(&self, steps: u64) -> bool {
        steps.is_multiple_of(self.steps)
    }

    /// Returns the fragment whose synchronization ends after `steps` steps of the run, if there is one.
    pub fn fragment_after(&self, steps: u64) -> Option<usize> {
        let turn = steps / self.turn_steps();
        let is_due = steps > 0 && steps.is_multiple_of(self.turn_steps());
        is_due.then(|| ((turn - 1) % self.fragments) as usize)
    }

    /// Returns the steps from a synchronization of a fragment to that of the next one.
    pub fn turn_steps(&self) -> u64 {
        self.steps / self.fragments
    }

    /// Returns the share of a replica's own parameters after a synchronization. Without a delay, replicas go on from
    /// what all of them have.
    pub fn alpha(&self) -> f64 {
        self.alpha.unwrap_or(if self.delay > 0 { OUTER.alpha } else { 0.0 })
    }

    /// Returns the options of the outer optimizer.
    pub(in crate::train) fn outer_options(&self) -> OuterSgdOptions {
        let (fragments, alpha) = (self.fragments as usize, self.alpha());
        OuterSgdOptions { lr: self.outer_lr, momentum: self.outer_momentum, fragments, alpha }
    }
}

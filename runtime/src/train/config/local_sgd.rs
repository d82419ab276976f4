//! `--local-steps`: replicas along `dp` that train apart, and are synchronized by an outer optimizer.

use serde::Serialize;

use crate::optim::OuterSgdOptions;

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
}

impl LocalSgdConfig {
    /// Returns true if the replicas are synchronized after `steps` steps of the run.
    pub fn synchronizes_after(&self, steps: u64) -> bool {
        steps.is_multiple_of(self.steps)
    }

    /// Returns the options of the outer optimizer.
    pub(in crate::train) fn outer_options(&self) -> OuterSgdOptions {
        OuterSgdOptions { lr: self.outer_lr, momentum: self.outer_momentum }
    }
}

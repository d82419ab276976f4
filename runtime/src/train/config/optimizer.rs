//! Settings of the optimizer.

use std::sync::Arc;

use serde::Serialize;

use crate::optim::UpdateRule;
use crate::train::LrSchedule;

use super::optimizers::OptimizerFlags;

/// Settings of the optimizer and of the gradients and parameters around it. Weight decay applies only to parameters of
/// two or more dims.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct OptimizerConfig {
    /// `--optimizer` and the flags that it takes.
    #[serde(flatten)]
    pub choice: OptimizerChoice,
    /// `--lr`, `--lr-schedule`, `--warmup`, `--min-lr` and `--steps`.
    pub lr: LrSchedule,
    /// `--weight-decay`.
    pub weight_decay: f64,
    /// `--clip`: the largest gradient norm; `None` (from 0) does not clip.
    pub clip: Option<f64>,
    /// `--ema`: decay of the moving average of the parameters; `None` for no average.
    pub ema: Option<f64>,
}

/// `--optimizer`, the flags that it takes, and the update rule that they make.
#[derive(Debug, Clone, Serialize)]
pub struct OptimizerChoice {
    /// `--optimizer`.
    #[serde(rename = "optimizer")]
    pub name: String,
    /// The flags that the optimizer takes, given or by default.
    #[serde(flatten)]
    pub flags: OptimizerFlags,
    /// The update rule.
    #[serde(skip)]
    pub rule: Arc<dyn UpdateRule>,
}

/// Choices are equal if name and flags are.
impl PartialEq for OptimizerChoice {
    fn eq(&self, other: &OptimizerChoice) -> bool {
        (&self.name, &self.flags) == (&other.name, &other.flags)
    }
}

impl OptimizerConfig {
    /// Returns the update rule.
    pub fn rule(&self) -> Arc<dyn UpdateRule> {
        Arc::clone(&self.choice.rule)
    }
}

//! The settings of the optimiser.

use serde::Serialize;

use crate::optim::{AdamWOptions, MuonOptions, OptimizerOptions, SgdOptions};
use crate::train::{Decay, LrSchedule};

use super::values::Values;

/// The settings of the optimiser, whichever it is. Weight decay applies to parameters of two or more dims only.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct OptimizerConfig {
    /// `--optimizer` and the settings that are its own.
    #[serde(flatten)]
    pub kind: OptimizerKind,
    /// `--lr`, `--lr-schedule`, `--warmup`, `--min-lr` and `--steps`.
    pub lr: LrSchedule,
    /// `--weight-decay`.
    pub weight_decay: f64,
    /// `--clip`: the largest gradient norm; `None` (from 0) does not clip.
    pub clip: Option<f64>,
    /// `--ema`: decay of the moving average of the parameters; `None` keeps none.
    pub ema: Option<f64>,
}

/// `--optimizer` and the settings that are its own.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "optimizer", rename_all = "lowercase")]
pub enum OptimizerKind {
    /// Adam with decoupled weight decay.
    AdamW {
        /// `--betas`.
        betas: (f64, f64),
        /// `--eps`.
        eps: f64,
    },
    /// Stochastic gradient descent with momentum.
    Sgd {
        /// `--momentum`; 0.9 unless given.
        momentum: f64,
    },
    /// Muon for the matrices of layers, AdamW for everything else.
    Muon {
        /// `--momentum`; 0.95 unless given.
        momentum: f64,
        /// `--betas`, of AdamW.
        betas: (f64, f64),
        /// `--eps`, of AdamW.
        eps: f64,
    },
}

impl OptimizerConfig {
    /// What the optimiser is made of.
    pub fn options(&self) -> OptimizerOptions {
        let weight_decay = self.weight_decay;
        match self.kind {
            OptimizerKind::AdamW { betas, eps } => {
                OptimizerOptions::AdamW(AdamWOptions { betas, eps, weight_decay })
            }
            OptimizerKind::Sgd { momentum } => {
                OptimizerOptions::Sgd(SgdOptions { momentum, nesterov: false, weight_decay })
            }
            OptimizerKind::Muon { momentum, betas, eps } => {
                let adamw = AdamWOptions { betas, eps, weight_decay };
                OptimizerOptions::Muon(MuonOptions { momentum, adamw })
            }
        }
    }
}

impl OptimizerKind {
    /// The name that `--optimizer` has for it.
    pub const fn name(self) -> &'static str {
        match self {
            OptimizerKind::AdamW { .. } => "adamw",
            OptimizerKind::Sgd { .. } => "sgd",
            OptimizerKind::Muon { .. } => "muon",
        }
    }
}

pub(super) fn optimizer(values: &mut Values) -> OptimizerConfig {
    OptimizerConfig {
        kind: kind(values),
        lr: schedule(values),
        weight_decay: values.number("weight-decay"),
        clip: Some(values.number("clip")).filter(|norm| *norm > 0.0),
        ema: values.fraction("ema"),
    }
}

/// The optimiser, with the flags that are its own; those of others are refused.
fn kind(values: &mut Values) -> OptimizerKind {
    let name = values.choice("optimizer");
    let (betas, eps) = (values.pair("betas"), values.number("eps"));
    let momentum = values.fraction("momentum");
    let (kind, foreign): (_, &[_]) = match name.as_str() {
        "sgd" => (OptimizerKind::Sgd { momentum: momentum.unwrap_or(0.9) }, &["betas", "eps"]),
        "muon" => (OptimizerKind::Muon { momentum: momentum.unwrap_or(0.95), betas, eps }, &[]),
        _ => (OptimizerKind::AdamW { betas, eps }, &["momentum"]),
    };
    if values.fits("optimizer") {
        for flag in foreign.iter().filter(|flag| values.is_given(flag)).collect::<Vec<_>>() {
            let owners =
                if *flag == "momentum" { "sgd and muon have" } else { "adamw and muon have" };
            let message =
                format!("is no setting of --optimizer {name}; {owners} it, so leave it out");
            values.problem(flag, message);
        }
    }
    kind
}

fn schedule(values: &mut Values) -> LrSchedule {
    let steps = values.count("steps").unwrap_or(1);
    let lr = LrSchedule {
        decay: match values.choice("lr-schedule").as_str() {
            "cosine" => Decay::Cosine,
            "wsd" => Decay::Wsd,
            _ => Decay::Constant,
        },
        peak: values.number("lr"),
        min: values.number("min-lr"),
        warmup: values.count("warmup").unwrap_or(0),
        steps,
    };
    if lr.min > lr.peak {
        values.problem("min-lr", format!("{} is above --lr {}", lr.min, lr.peak));
    }
    if lr.warmup > steps {
        values.problem("warmup", format!("{} is more than --steps {steps}", lr.warmup));
    }
    lr
}

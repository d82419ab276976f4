//! Settings of the optimizer.

use std::sync::Arc;

use serde::Serialize;

use crate::optim::{OptimizerError, UpdateRule};
use crate::train::{Decay, LrSchedule};
use meshwright_core::__internal::check_rule;

use super::optimizers::{OptimizerEntry, OptimizerFlags, Optimizers};
use super::values::Values;

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

pub(super) fn optimizer(values: &mut Values, optimizers: &Optimizers) -> OptimizerConfig {
    let weight_decay = values.number("weight-decay");
    OptimizerConfig {
        choice: choice(values, optimizers, weight_decay),
        lr: schedule(values),
        weight_decay,
        clip: Some(values.number("clip")).filter(|norm| *norm > 0.0),
        ema: values.fraction("ema"),
    }
}

/// Reads the optimizer and the flags that it takes; flags of other optimizers are refused.
fn choice(values: &mut Values, optimizers: &Optimizers, weight_decay: f64) -> OptimizerChoice {
    if let Some(name) = optimizers.duplicate_name() {
        values.problem("optimizer", format!("two optimizers are registered as `{name}`"));
    }
    let names: Vec<&str> = optimizers.entries().iter().map(OptimizerEntry::name).collect();
    let name = values.choice_of("optimizer", &names);
    let entry = optimizers.find(&name);
    let betas = values.is_given("betas").then(|| values.pair("betas"));
    let eps = values.is_given("eps").then(|| values.number("eps"));
    let momentum = values.fraction("momentum");
    let OptimizerFlags {
        betas: default_betas, eps: default_eps, momentum: default_momentum, ..
    } = entry.defaults();
    let flags = OptimizerFlags {
        betas: default_betas.map(|default| betas.unwrap_or(default)),
        eps: default_eps.map(|default| eps.unwrap_or(default)),
        momentum: default_momentum.map(|default| momentum.unwrap_or(default)),
        weight_decay,
    };
    if values.fits("optimizer") {
        refuse_foreign_flags(values, optimizers, entry);
    }
    let rule = entry.make_rule(&flags);
    if ["optimizer", "betas", "eps", "momentum", "weight-decay"]
        .iter()
        .all(|flag| values.fits(flag))
    {
        if rule.name() != entry.name() {
            let message = format!("`{name}` is registered for a rule named `{}`", rule.name());
            values.problem("optimizer", message);
        }
        if let Err(OptimizerError::Rule { message, .. }) = check_rule(&rule) {
            values.problem("optimizer", format!("{name}: {message}"));
        }
    }
    OptimizerChoice { name, flags, rule }
}

fn refuse_foreign_flags(values: &mut Values, optimizers: &Optimizers, entry: &OptimizerEntry) {
    for flag in OptimizerFlags::NAMES {
        if entry.takes_flag(flag) || !values.is_given(flag) {
            continue;
        }
        let owners = optimizers.entries().iter().filter(|entry| entry.takes_flag(flag));
        let owners: Vec<&str> = owners.map(OptimizerEntry::name).collect();
        let name = entry.name();
        let owners = match owners.split_last() {
            None => String::new(),
            Some((only, [])) => format!("; {only} has it"),
            Some((last, others)) => format!("; {} and {last} have it", others.join(", ")),
        };
        let message = format!("is not a setting of --optimizer {name}{owners}, so leave it out");
        values.problem(flag, message);
    }
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
    let has_no_end = lr.decay == Decay::Constant && values.fits("lr-schedule");
    if has_no_end && lr.min > 0.0 && values.is_given_now("min-lr") {
        let message = "is the end of a decay, and --lr-schedule constant has none; use cosine or wsd, or leave it out";
        values.problem("min-lr", message.into());
    } else if lr.min > lr.peak {
        values.problem("min-lr", format!("{} is above --lr {}", lr.min, lr.peak));
    }
    if lr.warmup > steps {
        values.problem("warmup", format!("{} is more than --steps {steps}", lr.warmup));
    }
    lr
}

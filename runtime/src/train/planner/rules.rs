//! Rules of thumb for large runs, and whether a plan keeps them.

use std::fmt;

use serde::Serialize;

use crate::layout::AxisId;
use crate::nn::RecomputeOverride;
use crate::train::Outline;

use super::planned_run::PlannedRun;

/// The run that rules are about.
pub struct RunScale<'a> {
    pub gpus: usize,
    pub parameters: f64,
    pub seq: usize,
    pub node: usize,
    pub outline: &'a Outline,
}

/// A rule of thumb.
struct Rule {
    name: &'static str,
    applies: fn(&RunScale<'_>, &PlannedRun) -> bool,
    keeps: fn(&RunScale<'_>, &PlannedRun) -> bool,
}

/// A rule that applies to a plan, and whether the plan keeps it.
#[derive(Debug, Clone, Serialize)]
pub struct RuleVerdict {
    pub rule: &'static str,
    pub is_kept: bool,
    /// The reason for departing from it.
    pub reason: Option<String>,
}

impl fmt::Display for RuleVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = self.rule;
        match &self.reason {
            None => write!(f, "{rule}: kept"),
            Some(reason) => write!(f, "{rule}: departs; {reason}"),
        }
    }
}

/// The rules, as courses and reports on large-scale training state them.
const RULES: [Rule; 11] = [
    Rule {
        name: "data parallelism alone up to 128 GPUs and 1 B parameters",
        applies: |scale, _| scale.gpus <= 128 && scale.parameters <= 1e9,
        keeps: |scale, plan| degree(plan, AxisId::Dp) == scale.gpus,
    },
    Rule {
        name: "FSDP above 1 B parameters",
        applies: |scale, _| scale.parameters > 1e9 && scale.gpus > 1,
        keeps: |_, plan| degree(plan, AxisId::Fsdp) > 1,
    },
    Rule {
        name: "HSDP above 256 GPUs",
        applies: |scale, _| scale.gpus > 256,
        keeps: |_, plan| degree(plan, AxisId::Dp) > 1 && degree(plan, AxisId::Fsdp) > 1,
    },
    Rule {
        name: "tp, pp or cp above 1,000 GPUs, 50 B parameters or 16 K tokens",
        applies: |scale, _| scale.gpus > 1000 || scale.parameters > 50e9 || scale.seq > 16_384,
        keeps: |_, plan| {
            [AxisId::Tp, AxisId::Pp, AxisId::Cp].into_iter().any(|axis| degree(plan, axis) > 1)
        },
    },
    Rule {
        name: "no tp, pp and cp up to 1,000 GPUs, 50 B parameters and 16 K tokens",
        applies: |scale, _| scale.gpus <= 1000 && scale.parameters <= 50e9 && scale.seq <= 16_384,
        keeps: |_, plan| {
            [AxisId::Tp, AxisId::Pp, AxisId::Cp].into_iter().all(|axis| degree(plan, axis) == 1)
        },
    },
    Rule {
        name: "tp inside of a node",
        applies: |_, plan| degree(plan, AxisId::Tp) > 1,
        keeps: |scale, plan| degree(plan, AxisId::Tp) <= scale.node,
    },
    Rule {
        name: "cp times tp up to the number of key and value heads, for Ulysses",
        applies: |_, plan| degree(plan, AxisId::Cp) > 1,
        keeps: |scale, plan| {
            degree(plan, AxisId::Cp) * degree(plan, AxisId::Tp) <= scale.outline.kv_heads
        },
    },
    Rule {
        name: "fill the memory",
        applies: |_, _| true,
        keeps: |_, plan| plan.run.memory_bytes as f64 >= 0.7 * plan.run.gpu_memory_bytes as f64,
    },
    Rule {
        name: "recompute to fit larger batches",
        applies: |_, _| true,
        keeps: |_, plan| plan.candidate.recompute != RecomputeOverride::Off,
    },
    Rule {
        name: "bubble at most (p - 1) / (m + p - 1)",
        applies: |_, plan| plan.candidate.pp() > 1,
        keeps: |_, plan| {
            let (stages, count) = (plan.candidate.pp() as f64, plan.candidate.micro_batches as f64);
            plan.run.bubble <= (stages - 1.0) / (count + stages - 1.0)
        },
    },
    Rule {
        name: "MFU above 30 % is good, above 40 % excellent",
        applies: |_, _| true,
        keeps: |_, plan| plan.run.mfu >= 0.3,
    },
];

/// Returns the rules that apply to the first plan, and whether it keeps each, with the reason if not: how much slower
/// the best of the other plans that keep it is.
pub fn check_rules(scale: &RunScale<'_>, plans: &[PlannedRun]) -> Vec<RuleVerdict> {
    let Some(best) = plans.first() else { return Vec::new() };
    let rules = RULES.iter().filter(|rule| (rule.applies)(scale, best));
    let verdict = |rule: &Rule| {
        if (rule.keeps)(scale, best) {
            return RuleVerdict { rule: rule.name, is_kept: true, reason: None };
        }
        let others = plans[1..].iter().filter(|plan| (rule.keeps)(scale, plan));
        let fastest = others.map(|plan| plan.run.step_s).fold(f64::INFINITY, f64::min);
        let slower = fastest / best.run.step_s;
        let reason = match slower {
            f64::INFINITY => "no plan that was simulated keeps it".to_owned(),
            ..1.01 => "a plan that keeps it is as fast, but less simple".to_owned(),
            _ => format!("the best simulated plan that keeps it takes {slower:.2} times as long"),
        };
        RuleVerdict { rule: rule.name, is_kept: false, reason: Some(reason) }
    };
    rules.map(verdict).collect()
}

fn degree(plan: &PlannedRun, axis: AxisId) -> usize {
    plan.candidate.mesh.degree(axis)
}

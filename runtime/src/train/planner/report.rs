//! The report of a search.

use std::fmt::{self, Write};

use serde_json::{Value, json};

use crate::backend::Bytes;
use crate::train::Task;
use crate::train::config::RunSettings;
use crate::train::console::counted;
use crate::train::simulate::{Seconds, SimulatedRun};
use meshwright_sim::cluster::SizedCluster;

use super::candidate::Candidate;
use super::effort::TOP;
use super::omissions::{Omission, omissions};
use super::planned_run::PlannedRun;
use super::rules::{RuleVerdict, RunScale, check_rules};
use super::scaling::{ScalingPoint, scaling_of};
use super::search::Found;

/// Width of the name of a line.
const INDENT: usize = 8;
/// Fraction of a step below which a part does not limit a plan.
const SMALL: f64 = 0.02;
/// Fraction of the memory of a GPU above which it limits a plan.
const FULL: f64 = 0.85;

/// The report of a search that has found plans.
pub struct PlanReport {
    pub on: SizedCluster,
    pub batch: usize,
    pub seq: usize,
    /// Number of plans that are listed.
    pub top: usize,
    pub found: Found,
    /// The parts that limit the best plan.
    pub binds: String,
    /// The best plan without each of its parts.
    pub omissions: Vec<Omission>,
    pub rules: Vec<RuleVerdict>,
    /// The best plan on other numbers of GPUs, for `--report`.
    pub scaling: Option<Vec<ScalingPoint>>,
}

impl PlanReport {
    /// Creates the report of a search that has found plans.
    pub fn new<T: Task>(settings: &RunSettings, on: &SizedCluster, found: Found) -> PlanReport {
        let (batch, seq, model) = (settings.batch, settings.seq, &found.model);
        let (node, outline, parameters) = (on.cluster.node(), &model.outline, model.parameters.all);
        let scale = RunScale { gpus: on.gpus, parameters, seq, node, outline };
        PlanReport {
            on: on.clone(),
            batch,
            seq,
            top: settings.top.unwrap_or(TOP),
            binds: binding(&found.plans[0].run),
            omissions: omissions::<T>(settings, on, &found),
            rules: check_rules(&scale, &found.plans),
            scaling: settings.report.as_ref().map(|_| scaling_of::<T>(settings, on, &found)),
            found,
        }
    }

    /// Returns the best plan.
    pub fn best(&self) -> &PlannedRun {
        &self.found.plans[0]
    }

    /// Returns the plans that are listed, the best first.
    pub fn listed(&self) -> &[PlannedRun] {
        let plans = &self.found.plans;
        &plans[..plans.len().min(self.top.max(1))]
    }

    /// Returns the question, in one line.
    pub fn question(&self) -> String {
        let PlanReport { on, batch, seq, found, .. } = self;
        format!(
            "plan of {} ({}) of {} for {:.4} B parameters, {} of {seq} tokens a step",
            counted(on.gpus, "GPU"),
            on.cluster.gpu.name,
            on.cluster.name,
            found.model.parameters.all / 1e9,
            counted(*batch, "sequence"),
        )
    }

    /// Returns the numbers of the candidates, in one line.
    pub fn comparison(&self) -> String {
        let Found { plans, considered, left_out, .. } = &self.found;
        format!("{considered} candidates, {} simulated; left out: {left_out}", plans.len())
    }

    /// Returns the content of the text, and more, as one document.
    pub fn to_json(&self) -> Value {
        let PlanReport { on, batch, seq, found, binds, omissions, rules, scaling, .. } = self;
        let plans = self.listed().iter().map(
            |PlannedRun { candidate, run }| json!({ "flags": flags_of(candidate), "run": run }),
        );
        let mut document = json!({
            "cluster": on.cluster.name,
            "gpus": on.gpus,
            "parameters": found.model.parameters.all,
            "batch": batch,
            "seq": seq,
            "plans": plans.collect::<Vec<_>>(),
            "binds": binds,
            "omissions": omissions,
            "considered": found.considered,
            "simulated": found.plans.len(),
            "left_out": found.left_out,
            "estimates": found.estimates,
            "rules": rules,
        });
        if let Some(scaling) = scaling {
            document["scaling"] = json!(scaling);
        }
        document
    }
}

/// Returns the flags of a plan, as they are typed.
pub fn flags_of(candidate: &Candidate) -> String {
    format!("--device cuda {candidate}")
}

impl fmt::Display for PlanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let best = self.best();
        writeln!(f, "{}:", self.question())?;
        let mut line = |name: &str, content: &str| writeln!(f, "{name:<INDENT$}{content}");
        line("use", &flags_of(&best.candidate))?;
        // All but the head line, which names the mesh.
        best.run.to_string().lines().skip(1).try_for_each(|part| line("", part))?;
        line("binds", &self.binds)?;
        self.omissions.iter().try_for_each(|omission| line("", &omission.to_string()))?;
        for (idx, plan) in self.listed()[1..].iter().enumerate() {
            line(if idx == 0 { "also" } else { "" }, &describe(plan, &best.run))?;
        }
        line("compare", &self.comparison())?;
        for (idx, verdict) in self.rules.iter().enumerate() {
            line(if idx == 0 { "rules" } else { "" }, &verdict.to_string())?;
        }
        Ok(())
    }
}

/// Describes another plan.
fn describe(plan: &PlannedRun, best: &SimulatedRun) -> String {
    let run = &plan.run;
    format!(
        "{:.2}x  {}  MFU {:.1} %  {}  {}",
        run.step_s / best.step_s,
        Seconds(run.step_s),
        100.0 * run.mfu,
        Bytes(run.memory_bytes as f64),
        plan.candidate
    )
}

/// Describes what limits a run: the longest part of a step without computation, and a full memory.
fn binding(run: &SimulatedRun) -> String {
    let is_loss = |name: &str| {
        name.starts_with("exposed") || ["bubble", "launches", "transfers"].contains(&name)
    };
    let losses = run.time_s.iter().filter(|(name, _)| is_loss(name));
    let largest = losses.max_by(|a, b| a.1.total_cmp(b.1));
    let mut text = match largest {
        None => "computation: nothing else takes time".to_owned(),
        Some((_, seconds)) if *seconds < SMALL * run.step_s => {
            format!("computation: nothing else takes {:.0} % of the step", 100.0 * SMALL)
        }
        Some((name, seconds)) => {
            let what = match &**name {
                "bubble" => "the pipeline bubble".to_owned(),
                "launches" => "launches of kernels by the host".to_owned(),
                "transfers" => "copies between host and GPU".to_owned(),
                name => format!(
                    "communication over {} that nothing overlaps",
                    name.trim_start_matches("exposed ")
                ),
            };
            format!("{what}: {:.1} % of the step", 100.0 * seconds / run.step_s)
        }
    };
    let fraction = run.memory_bytes as f64 / run.gpu_memory_bytes as f64;
    if fraction > FULL {
        let _ = write!(text, "; memory: {:.0} % of a GPU's", 100.0 * fraction);
    }
    text
}

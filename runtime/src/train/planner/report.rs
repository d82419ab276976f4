//! The report of a search.

use std::fmt::Write;

use crate::backend::Bytes;
use crate::train::config::RunSettings;
use crate::train::console::counted;
use crate::train::simulate::SimulatedRun;
use meshwright_sim::cluster::SizedCluster;

use super::effort::TOP;
use super::planned_run::PlannedRun;
use super::rules::{RunScale, check_rules};
use super::search::Found;

/// Width of the name of a line.
const INDENT: usize = 8;
/// Fraction of the memory of a GPU above which it limits a plan.
const FULL: f64 = 0.85;

/// Returns the report of a search that has found plans.
pub fn report(settings: &RunSettings, on: &SizedCluster, found: &Found) -> String {
    let Found { plans, considered, left_out, model, .. } = found;
    let Some(best) = plans.first() else { return String::new() };
    let mut text = format!(
        "plan of {} of {} for {:.4} B parameters, {} of {} tokens a step:\n",
        counted(on.gpus, &on.cluster.gpu.name),
        on.cluster.name,
        model.parameters / 1e9,
        counted(settings.batch, "sequence"),
        settings.seq
    );
    let mut line = |name: &str, content: &str| {
        let _ = writeln!(text, "{name:<INDENT$}{content}");
    };
    line("use", &format!("--device cuda {}", best.candidate));
    // All but the head line, which names the mesh.
    best.run.to_string().lines().skip(1).for_each(|part| line("", part));
    line("binds", &binding(&best.run));
    for (idx, plan) in
        plans[1..].iter().take(settings.top.unwrap_or(TOP).saturating_sub(1)).enumerate()
    {
        line(if idx == 0 { "also" } else { "" }, &describe(plan, &best.run));
    }
    line(
        "compare",
        &format!("{considered} candidates, {} simulated; left out: {left_out}", plans.len()),
    );
    let (node, outline) = (on.cluster.node(), &model.outline);
    let scale =
        RunScale { gpus: on.gpus, parameters: model.parameters, seq: settings.seq, node, outline };
    for (idx, verdict) in check_rules(&scale, plans).iter().enumerate() {
        line(if idx == 0 { "rules" } else { "" }, verdict);
    }
    text
}

/// Describes another plan.
fn describe(plan: &PlannedRun, best: &SimulatedRun) -> String {
    let run = &plan.run;
    format!(
        "{:.2}x  {:.2} s  MFU {:.1} %  {}  {}",
        run.step_s / best.step_s,
        run.step_s,
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

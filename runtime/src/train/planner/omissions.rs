//! The best plan without one of its parts: why it has each.

use std::fmt;

use serde::Serialize;

use crate::backend::Bytes;
use crate::layout::AxisId;
use crate::mesh::MeshShape;
use crate::nn::RecomputeOverride;
use crate::train::Task;
use crate::train::config::RunSettings;
use crate::train::plan::MemoryPlan;
use meshwright_sim::cluster::SizedCluster;

use super::candidate::Candidate;
use super::parallel::map_on_cores;
use super::planned_run::PlannedRun;
use super::search::Found;
use super::simulated_candidate::simulate_candidate;
use super::simulations::QUICK_PASSES;
use super::space::USABLE_MEMORY;

/// The axes that are left out, each alone.
const AXES: [AxisId; 4] = [AxisId::Tp, AxisId::Cp, AxisId::Ep, AxisId::Pp];

/// A plan without one of the parts of the best one, an axis or recomputation: the best other plan that does without,
/// or, if none was found, the same plan, in which the ranks of the axis share the tokens.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Omission {
    /// The axis, or `recomputation`.
    pub without: String,
    /// Bytes of the fullest rank; of its state alone if that does not fit.
    pub memory_bytes: u64,
    /// Time of a step over that of the plan; `None` if the state alone does not fit.
    pub slowdown: Option<f64>,
    /// True if the memory of a GPU is enough.
    pub fits: bool,
    /// The flags, as they are typed.
    pub flags: String,
}

impl fmt::Display for Omission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Omission { without, memory_bytes, slowdown, fits, flags } = self;
        let bytes = Bytes(*memory_bytes as f64);
        match slowdown {
            None => write!(f, "without {without}: {bytes} of state alone, which does not fit"),
            Some(_) if !fits => write!(f, "without {without}: {bytes}, which does not fit"),
            Some(slowdown) => {
                write!(f, "without {without}: {slowdown:.2} times as long, {bytes}, {flags}")
            }
        }
    }
}

/// Leaves out each part of the best plan that settings and batch allow to leave out.
pub fn omissions<T: Task>(
    settings: &RunSettings,
    on: &SizedCluster,
    found: &Found,
) -> Vec<Omission> {
    let Some(best) = found.plans.first() else { return Vec::new() };
    let simulate = |(): &mut (), (without, candidate): &(String, Candidate)| {
        let memory = USABLE_MEMORY * on.cluster.gpu.memory.value;
        let config = candidate.settings(settings, on).resolve().ok()?;
        let model = &found.model;
        let state = MemoryPlan::of_parameters(&config, &model.outline, model.parameters).total();
        let is_large = state as f64 > memory;
        if !is_large && model.outline.layers * candidate.micro_batches > 2 * QUICK_PASSES {
            return None;
        }
        let run = (!is_large).then(|| simulate_candidate::<T>(settings, on, candidate));
        let run = run.transpose().ok()?.map(|plan| plan.run);
        let memory_bytes = run.as_ref().map_or(state, |run| run.memory_bytes);
        Some(Omission {
            without: without.clone(),
            memory_bytes,
            slowdown: run.map(|run| run.step_s / best.run.step_s),
            fits: memory_bytes as f64 <= memory,
            flags: candidate.to_string(),
        })
    };
    let mut omissions = Vec::new();
    let mut unknown = Vec::new();
    for (without, candidate) in variants(&best.candidate, |name| settings.is_given(name)) {
        let lacks = |plan: &&PlannedRun| match AXES.iter().find(|axis| axis.to_string() == without)
        {
            Some(axis) => plan.candidate.mesh.degree(*axis) == 1,
            None => plan.candidate.recompute == RecomputeOverride::Off,
        };
        let others = found.plans[1..].iter().filter(lacks);
        match others.min_by(|a, b| a.run.step_s.total_cmp(&b.run.step_s)) {
            Some(PlannedRun { candidate, run }) => omissions.push(Omission {
                without,
                memory_bytes: run.memory_bytes,
                slowdown: Some(run.step_s / best.run.step_s),
                fits: true,
                flags: candidate.to_string(),
            }),
            None => unknown.push((without, candidate)),
        }
    }
    omissions.extend(map_on_cores(&unknown, || (), simulate).into_iter().flatten());
    omissions
}

/// Returns the candidate without each of its parts that are not given.
fn variants(best: &Candidate, is_given: impl Fn(&str) -> bool) -> Vec<(String, Candidate)> {
    let mut variants = Vec::new();
    for axis in AXES {
        let degree = best.mesh.degree(axis);
        if degree == 1 {
            continue;
        }
        let sharing = if best.mesh.degree(AxisId::Fsdp) > 1 { AxisId::Fsdp } else { AxisId::Dp };
        let degrees = AxisId::ALL.map(|other| match other {
            _ if other == axis => (other, 1),
            _ if other == sharing => (other, degree * best.mesh.degree(other)),
            _ => (other, best.mesh.degree(other)),
        });
        let Ok(mesh) = MeshShape::new(degrees) else { continue };
        // Experts share their tokens over `ep` already.
        let micro_batches = match axis {
            AxisId::Ep => best.micro_batches,
            _ => (best.micro_batches / degree).max(1),
        };
        let schedule = best.schedule.filter(|_| axis != AxisId::Pp);
        variants.push((axis.to_string(), Candidate { mesh, micro_batches, schedule, ..*best }));
    }
    if best.recompute != RecomputeOverride::Off && !is_given("recompute") {
        let recompute = RecomputeOverride::Off;
        variants.push(("recomputation".to_owned(), Candidate { recompute, ..*best }));
    }
    variants
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::ScheduleKind;
    use crate::tensor::ZeroStage;

    #[test]
    fn ranks_of_an_axis_share_the_tokens() {
        let best = Candidate {
            mesh: "pp=4,fsdp=2,cp=2,tp=8".parse().unwrap(),
            zero: ZeroStage::Optimizer,
            schedule: Some((ScheduleKind::OneFOneB, 1)),
            micro_batches: 4,
            recompute: RecomputeOverride::Full,
            is_eager: false,
        };
        let texts = |given: bool| -> Vec<String> {
            let variants = variants(&best, |_| given);
            variants.iter().map(|(name, without)| format!("{name}: {without}")).collect()
        };
        let expected = [
            "tp: --mesh pp=4,fsdp=16,cp=2 --zero 1 --schedule 1f1b --micro-batches 1 --recompute full",
            "cp: --mesh pp=4,fsdp=4,tp=8 --zero 1 --schedule 1f1b --micro-batches 2 --recompute full",
            "pp: --mesh fsdp=8,cp=2,tp=8 --zero 1 --micro-batches 1 --recompute full",
            "recomputation: --mesh pp=4,fsdp=2,cp=2,tp=8 --zero 1 --schedule 1f1b --micro-batches 4 --recompute none",
        ];
        assert_eq!(texts(false), expected);
        assert_eq!(texts(true), expected[..3]);
    }

    #[test]
    fn the_reason_is_stated() {
        let mut omission = Omission {
            without: "cp".into(),
            memory_bytes: 88_300_000_000,
            slowdown: Some(0.9),
            fits: false,
            flags: "--mesh dp=8".into(),
        };
        assert_eq!(omission.to_string(), "without cp: 88.3 GB, which does not fit");
        (omission.fits, omission.slowdown) = (true, Some(1.25));
        assert_eq!(omission.to_string(), "without cp: 1.25 times as long, 88.3 GB, --mesh dp=8");
        (omission.fits, omission.slowdown) = (false, None);
        assert_eq!(omission.to_string(), "without cp: 88.3 GB of state alone, which does not fit");
    }
}

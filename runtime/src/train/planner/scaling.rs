//! The best plan on fewer and more GPUs.

use serde::Serialize;

use crate::layout::AxisId;
use crate::mesh::MeshShape;
use crate::train::Task;
use crate::train::config::RunSettings;
use meshwright_sim::cluster::SizedCluster;

use super::candidate::Candidate;
use super::parallel::map_on_cores;
use super::planned_run::PlannedRun;
use super::search::Found;
use super::simulated_candidate::simulate_candidate;
use super::simulations::QUICK_PASSES;

/// GPUs over those of the plan, as fractions.
const FACTORS: [(usize, usize); 3] = [(1, 4), (1, 2), (2, 1)];

/// The best plan on another number of GPUs: the data-parallel ranks are more or fewer, and the others remain.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScalingPoint {
    /// `weak`: the batch grows with the GPUs; `strong`: it remains.
    pub scaling: &'static str,
    pub gpus: usize,
    /// Sequences of a step.
    pub batch: usize,
    /// The flags, as they are typed.
    pub flags: String,
    pub step_s: f64,
    pub tokens_per_s: f64,
    pub mfu: f64,
    pub memory_bytes: u64,
}

/// Simulates the best plan on a quarter, half and twice of its GPUs, as far as settings and cluster accept that, and
/// the dry run takes few seconds.
pub fn scaling_of<T: Task>(
    settings: &RunSettings,
    on: &SizedCluster,
    found: &Found,
) -> Vec<ScalingPoint> {
    let Some(best) = found.plans.first() else { return Vec::new() };
    let mut cases: Vec<(&'static str, usize, Candidate)> = Vec::new();
    for (times, over) in FACTORS {
        let Some(mesh) = scaled_mesh(&best.candidate.mesh, times, over) else { continue };
        if on.cluster.check_size(mesh.world_size()).is_err() {
            continue;
        }
        let micro_batches = best.candidate.micro_batches;
        let divided = |number: usize, times: usize, over: usize| {
            Some(number * times / over).filter(|_| (number * times).is_multiple_of(over))
        };
        let weak = divided(settings.batch, times, over).map(|batch| ("weak", batch, micro_batches));
        let strong = divided(micro_batches, over, times).unwrap_or(micro_batches);
        let strong = Some(("strong", settings.batch, strong));
        for (scaling, batch, micro_batches) in weak.into_iter().chain(strong) {
            let candidate = Candidate { mesh, micro_batches, ..best.candidate };
            if found.model.outline.layers * micro_batches <= 2 * QUICK_PASSES {
                cases.push((scaling, batch, candidate));
            }
        }
    }
    let simulated = map_on_cores(
        &cases,
        || (),
        |(), (scaling, batch, candidate)| {
            let (mut settings, mut on) = (settings.clone(), on.clone());
            (settings.batch, on.gpus) = (*batch, candidate.mesh.world_size());
            let plan = simulate_candidate::<T>(&settings, &on, candidate).ok()?;
            Some(point(scaling, *batch, &plan))
        },
    );
    let of_best = ["weak", "strong"].map(|scaling| point(scaling, settings.batch, best));
    let mut points: Vec<_> = simulated.into_iter().flatten().chain(of_best).collect();
    points.sort_by_key(|point| (point.scaling == "strong", point.gpus));
    points
}

fn point(
    scaling: &'static str,
    batch: usize,
    PlannedRun { candidate, run }: &PlannedRun,
) -> ScalingPoint {
    ScalingPoint {
        scaling,
        gpus: run.gpus,
        batch,
        flags: candidate.to_string(),
        step_s: run.step_s,
        tokens_per_s: run.tokens_per_s,
        mfu: run.mfu,
        memory_bytes: run.memory_bytes,
    }
}

/// Returns the mesh with `times / over` of the ranks along `fsdp`, or along `dp` if there are no others.
fn scaled_mesh(mesh: &MeshShape, times: usize, over: usize) -> Option<MeshShape> {
    let can_scale = |axis: &AxisId| {
        let degree = mesh.degree(*axis);
        (degree * times).is_multiple_of(over) && (degree > 1 || *axis == AxisId::Dp)
    };
    let scaled = [AxisId::Fsdp, AxisId::Dp].into_iter().find(can_scale)?;
    let degree = |axis: AxisId| {
        let degree = mesh.degree(axis);
        if axis == scaled { degree * times / over } else { degree }
    };
    let mesh_of = MeshShape::new(AxisId::ALL.map(|axis| (axis, degree(axis)))).ok()?;
    mesh_of.with_order(*mesh.order()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_parallel_ranks_are_scaled() {
        for (mesh, times, over, expected) in [
            ("pp=2,fsdp=4,tp=8", 2, 1, Some("pp=2,fsdp=8,tp=8")),
            ("pp=2,fsdp=4,tp=8", 1, 4, Some("pp=2,tp=8")),
            ("dp=4,fsdp=3", 1, 2, Some("dp=2,fsdp=3")),
            ("tp=8", 2, 1, Some("dp=2,tp=8")),
            ("tp=8", 1, 2, None),
        ] {
            let scaled = scaled_mesh(&mesh.parse().unwrap(), times, over);
            assert_eq!(scaled, expected.map(|mesh| mesh.parse().unwrap()), "{mesh}");
        }
    }
}

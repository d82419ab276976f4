//! `--mesh auto=N` on GPUs of a known cluster: the best plan of a small search that this machine accepts.

use crate::train::auto_mesh::ChosenMesh;
use crate::train::config::{Config, RunSettings};
use crate::train::{Result, Task};
use meshwright_sim::cluster::SizedCluster;

use super::effort::Effort;
use super::planned_run::PlannedRun;
use super::search::search;

/// Chooses the mesh, and all settings of a plan that are not given, of a new run on all GPUs of `on`: the best plan
/// that `check` accepts. `None` if there is none.
pub fn choose_planned<T: Task>(
    settings: &RunSettings,
    on: &SizedCluster,
    mut check: impl FnMut(&Config) -> Result<()>,
) -> Option<ChosenMesh> {
    // A reason against all meshes is that of the other choice.
    let found = search::<T>(&settings.without_data(), on, Effort::TO_TRAIN).ok()?;
    found.plans.into_iter().find_map(|PlannedRun { candidate, run }| {
        let config = candidate.apply(settings).resolve().ok()?;
        check(&config).ok()?;
        let reason = format!(
            "--mesh auto: {candidate}, the fastest of {} in a simulation on {}: {:.4} s a step +-{:.0} %; \
             --plan {}x{} explains it",
            found.considered,
            on.cluster.name,
            run.step_s,
            100.0 * run.uncertainty,
            on.cluster.name,
            on.gpus
        );
        Some(ChosenMesh { config, reason })
    })
}

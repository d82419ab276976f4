//! Predictions of published runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use meshwright::backend::Category;
use meshwright::sim::cluster::{Catalog, Cluster};
use meshwright::sim::{SimOptions, SoftwareFactors, StepLog, simulate};

use crate::edit::Edit;
use crate::machine::cluster_of;
use crate::profile::Profile;
use crate::program::{LoggedStep, Program};
use crate::row::{Recompute, Run};
use crate::software::Software;

/// A predicted step.
#[derive(Clone, Copy)]
pub struct Prediction {
    pub seconds: f64,
    /// Bytes at the peak of the rank that needs most.
    pub memory: f64,
}

/// Profiles of software, descriptions of clusters, and constants.
pub struct Predictor {
    catalog: Catalog,
    profiles: BTreeMap<String, Profile>,
    software: Software,
}

impl Predictor {
    /// Creates a predictor of software with these profiles.
    pub fn new(profiles: BTreeMap<String, Profile>) -> Predictor {
        Predictor { catalog: Catalog::new(), profiles, software: Software::default() }
    }

    /// Returns the profile of a source.
    pub fn profile(&self, source: &str) -> &Profile {
        self.profiles.get(source).unwrap_or(&Profile::USUAL)
    }

    /// Returns the program and the numbers of micro-batches whose steps a run needs.
    pub fn program(&self, run: &Run) -> (Program, [usize; 2]) {
        let program = Program::new(run, self.profile(&run.source).reduce_bytes);
        (program, sampled_micro_batches(run))
    }

    /// Predicts a run from the steps of its program.
    ///
    /// # Errors
    /// The reason why it cannot be predicted.
    pub fn predict(&self, run: &Run, steps: [&LoggedStep; 2]) -> Result<Prediction, String> {
        let cluster = self.cluster(run)?;
        let counts = sampled_micro_batches(run);
        let first = self.seconds(run, &cluster, steps[0])?;
        let mut seconds = first;
        if counts[0] < run.micro_batches {
            let more = self.seconds(run, &cluster, steps[1])? - first;
            let each = more / (counts[1] - counts[0]) as f64;
            seconds += each * (run.micro_batches - counts[0]) as f64;
        }
        let is_on_device = |category| category != Category::Offloaded;
        let peaks = steps[1].logs.iter().map(|log| log.memory_peak(is_on_device).bytes);
        let memory = peaks.max().unwrap_or_default() as f64;
        Ok(Prediction { seconds, memory })
    }

    /// Returns the cluster of a run.
    ///
    /// # Errors
    /// A GPU that the catalog does not have.
    pub fn cluster(&self, run: &Run) -> Result<Cluster, String> {
        cluster_of(&run.machine, &self.catalog, &self.software)
    }

    /// Returns the logs of the software of a run.
    pub fn logs(&self, run: &Run, cluster: &Cluster, step: &LoggedStep) -> Vec<Arc<StepLog>> {
        let profile = self.profile(&run.source);
        let edit = Edit {
            profile,
            software: &self.software,
            gpu: &cluster.gpu,
            mesh: run.mesh,
            is_fp8: run.is_fp8,
            recomputes_core: run.recompute == Recompute::CoreAttention,
            message_bandwidth: cluster
                .levels
                .last()
                .map_or(f64::INFINITY, |level| level.message_bandwidth.value),
        };
        step.logs.iter().map(|log| edit.apply(log)).collect()
    }

    /// Returns the settings of simulations.
    pub fn options(&self) -> SimOptions {
        let interference = self.software.interference;
        let software = SoftwareFactors { interference, ..SoftwareFactors::default() };
        SimOptions { software, ..SimOptions::default() }
    }

    fn seconds(&self, run: &Run, cluster: &Cluster, step: &LoggedStep) -> Result<f64, String> {
        let logs = self.logs(run, cluster, step);
        let simulated = simulate(cluster, &step.mesh, &logs, &self.options());
        Ok(simulated.map_err(|error| error.to_string())?.seconds)
    }
}

/// Returns two numbers of micro-batches, from which the time of a step is extrapolated: the first is that of the run if
/// it is small. Beyond the fill of a pipeline, the time is linear in rounds of micro-batches.
fn sampled_micro_batches(run: &Run) -> [usize; 2] {
    let (round, count) = (run.mesh.pp, run.micro_batches);
    if count <= 3 * round {
        return [count; 2];
    }
    let first = round + count % round;
    if round == 1 { [2, 3] } else { [first, first + round] }
}

//! The simulated step of a run that has trained, beside the measured one.

use std::fmt;
use std::sync::Arc;

use crate::backend::DType;
use crate::train::config::{Config, DeviceChoice};
use crate::train::machine::Machine;
use crate::train::plan::Plan;
use crate::train::simulate::SimulatedRun;
use crate::train::{Error, Result, Task};
use meshwright_sim::cluster::{Catalog, Cluster, ClusterError, SizedCluster};

/// A predicted step time.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Name of the cluster whose description it follows from.
    pub cluster: String,
    /// Seconds of a step.
    pub step_s: f64,
    /// Relative uncertainty, from the trust in the rates of the cluster.
    pub uncertainty: f64,
}

impl Prediction {
    /// Simulates a step of `plan`; `None` if its cluster is unknown or does not describe the run, or if
    /// steps differ, as with `--local-steps`.
    pub fn of_plan<T: Task>(plan: &Plan) -> Option<Prediction> {
        let Config { cluster, mesh, dtype, device, local_sgd, .. } = &plan.config;
        if local_sgd.is_some() {
            // The steps differ.
            return None;
        }
        let run = (mesh.world_size(), dtype.dtype(), *device);
        let on = cluster_of(cluster.as_ref(), run, &*plan.machine).ok()??;
        let run = SimulatedRun::of_plan::<T>(plan, &on, false).ok()?;
        let SimulatedRun { cluster, step_s, uncertainty, .. } = run;
        Some(Prediction { cluster, step_s, uncertainty })
    }

    /// Compares it with a measured step of `seconds`.
    pub fn beside(&self, seconds: f64) -> String {
        let error = self.step_s / seconds - 1.0;
        let advice = if error.abs() > self.uncertainty {
            "; that is beyond its uncertainty: --record and `meshwright calibrate` describe this machine"
        } else {
            ""
        };
        let (measured, percent) = (seconds * 1e3, error * 100.0);
        format!("step time: {measured:.1} ms measured (median), {self} ({percent:+.1} %){advice}")
    }
}

impl fmt::Display for Prediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Prediction { cluster, step_s, uncertainty } = self;
        let percent = 100.0 * uncertainty;
        write!(f, "{:.1} ms +-{percent:.0} % predicted for {cluster}", step_s * 1e3)
    }
}

/// The ranks of a run, and their dtype and device.
pub type RunRanks = (usize, DType, DeviceChoice);

/// Returns the GPUs of a run: of the cluster that is `given` by `--cluster`, or else of the one that the catalog has
/// for their name.
///
/// # Errors
/// As [`given_cluster`].
pub fn cluster_of(
    given: Option<&Arc<Cluster>>,
    run: RunRanks,
    machine: &dyn Machine,
) -> Result<Option<SizedCluster>> {
    if given.is_some() {
        return given_cluster(given, run);
    }
    let device = machine.device();
    let is_known = device.is_gpu && device.ranks_each == 1;
    let known = is_known.then(|| Catalog::new().cluster_of_driver_name(&device.name)).flatten();
    Ok(known.and_then(|cluster| sized(&cluster, run).ok()))
}

/// Returns the GPUs of a run on the cluster of `--cluster`, if it is given.
///
/// # Errors
/// A cluster of another device, without so many GPUs, or whose peak for the dtype is not known.
pub fn given_cluster(given: Option<&Arc<Cluster>>, run: RunRanks) -> Result<Option<SizedCluster>> {
    let Some(cluster) = given else { return Ok(None) };
    if DeviceChoice::of_cluster(cluster) != run.2 {
        let (described, device) = match run.2 {
            DeviceChoice::Cuda => ("a CPU", "GPUs"),
            DeviceChoice::Cpu => ("GPUs", "the CPU"),
        };
        return Err(Error::Input(format!(
            "--cluster: {} describes {described}, and this run is on {device}; leave it out, or give a description \
             of this machine, as `meshwright calibrate` writes it",
            cluster.name
        )));
    }
    let on = sized(cluster, run).map_err(|error| Error::Input(format!("--cluster: {error}")))?;
    Ok(Some(on))
}

fn sized(
    cluster: &Arc<Cluster>,
    (ranks, dtype, _): RunRanks,
) -> std::result::Result<SizedCluster, ClusterError> {
    cluster.gpu.peak_of(dtype)?;
    SizedCluster::of(cluster, ranks)
}

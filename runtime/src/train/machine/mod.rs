//! The devices of a run: one CPU, or GPUs.

mod cpu;
#[cfg(feature = "mpi")]
mod cpu_processes;
#[cfg(feature = "cuda")]
mod gpu_choice;
#[cfg(feature = "cuda")]
mod gpus;
mod host_memory;
#[cfg(feature = "cuda")]
mod message_path;
#[cfg(any(feature = "cuda", feature = "mpi"))]
mod process_store;
mod processes;

use std::sync::Arc;

use crate::backend::{Backend, DType};
use crate::comm::{Peers, RankComms, RankExit};
#[cfg(any(test, not(feature = "mpi")))]
use crate::launch::RankAssignmentError;
use crate::launch::{ProcessRank, RankAssignment, Store};

use crate::train::config::{Config, DeviceChoice};
use crate::train::{Error, Result};
use meshwright_sim::cluster::SizedCluster;

use cpu::CpuMachine;
pub use cpu::open_cpu;
pub use processes::{await_first, require_same_settings};

/// The devices of a run and their connection. [`Trainer::on`](crate::train::Trainer::on) takes a user-defined one.
pub trait Machine: Send + Sync {
    /// Creates the backend of a rank, by world rank. Called once, on the thread of the rank.
    ///
    /// # Errors
    /// A device that the machine does not have.
    fn backend(&self, rank: usize) -> Result<Box<dyn Backend>>;

    /// Returns the rank of this process if every rank is a process; `None` if all ranks are threads of this one.
    fn own_rank(&self) -> Option<usize> {
        None
    }

    /// The TCP store of the processes, if every rank is one.
    fn store(&self) -> Option<&Arc<Store>> {
        None
    }

    /// Announces to the processes of the other ranks that this one fails before its rank starts; nothing if all ranks
    /// are threads of this one.
    fn announce_failure(&self, error: &Error) {
        if let Some(store) = self.store() {
            let (code, error) = (error.exit_code(), error.to_string().into());
            store.announce_exit(&RankExit::Failed { error, code });
        }
    }

    /// Returns the rank's communicators over the interconnect of the devices; by default those between threads. Called
    /// once, on the thread of the rank.
    ///
    /// # Errors
    /// A rendezvous that fails.
    fn connect(&self, comms: RankComms, _backend: &dyn Backend) -> Result<RankComms> {
        Ok(comms)
    }

    /// Returns the reason why steps cannot run as CUDA graphs on this machine, if there is one.
    fn cuda_graph_obstacle(&self) -> Option<String> {
        None
    }

    /// Describes the machine in a few words: "4 threads", "an NVIDIA H100".
    fn describe(&self) -> String;

    /// Describes the device of each rank, for a record.
    fn device(&self) -> MachineDevice {
        MachineDevice { name: self.describe(), units: 1, is_gpu: true, ranks_each: 1 }
    }

    /// Returns the memory of all ranks together, in bytes, if known.
    fn memory(&self) -> Option<f64>;

    /// Returns the peak FLOP/s of all ranks together in matmuls of `dtype`, if known; otherwise it is measured.
    fn peak_flops(&self, dtype: DType) -> Option<f64>;
}

/// The device of each rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineDevice {
    /// Name of the CPU or GPU.
    pub name: String,
    /// Cores of the CPU, or streaming multiprocessors.
    pub units: usize,
    /// False for the CPU, which all ranks share.
    pub is_gpu: bool,
    /// Ranks that share a GPU.
    pub ranks_each: usize,
}

#[cfg(feature = "cuda")]
pub use gpus::Gpus;

/// Opens the machine of `--device`.
///
/// # Errors
/// A device that is missing, and a failed rendezvous of processes.
pub fn open_machine(config: &Config) -> Result<Box<dyn Machine>> {
    if config.is_dry_run() {
        // Only the first of several processes prints. One that a launcher has not started has no rank.
        let own_rank = ProcessRank::from_environment().ok().flatten().map(|own| own.rank);
        return Ok(Box::new(NoMachine { own_rank, cluster: described_cluster(config) }));
    }
    match config.device {
        DeviceChoice::Cpu => {
            if let Some(processes) = open_cpu_processes(config)? {
                return Ok(processes);
            }
            let ranks = config.mesh.world_size();
            Ok(Box::new(CpuMachine { threads: config.threads_per_rank(ranks), ranks }))
        }
        DeviceChoice::Cuda => open_gpus(config, rank_assignment()?),
    }
}

/// Returns the GPUs that a run without a machine is described for.
fn described_cluster(config: &Config) -> Option<SizedCluster> {
    let given = config.cluster.as_ref();
    let of_run = || SizedCluster::of(given?, config.mesh.world_size()).ok();
    config.simulate.clone().or_else(of_run)
}

/// Returns the memory of this host that is available, in bytes, if known.
pub fn host_memory() -> Option<f64> {
    host_memory::available_memory()
}

/// Returns the number of ranks that this machine suggests: the processes that a launcher has started, else the GPUs of
/// the host.
///
/// # Errors
/// One process on a CPU, whose cores any number of ranks can divide, and a missing driver.
pub fn suggested_ranks(device: DeviceChoice) -> Result<usize> {
    if device == DeviceChoice::Cuda {
        return rank_assignment()?.map_or_else(count_gpus, |assignment| Ok(assignment.world));
    }
    cpu_processes()?.map(|own| own.world).ok_or_else(|| {
        Error::Input(
            "--mesh: `auto` counts GPUs or processes; in one process on the CPU name the ranks, such as `auto=4`"
                .into(),
        )
    })
}

/// Returns the rank assignment of this process, if a launcher has started several.
fn rank_assignment() -> Result<Option<RankAssignment>> {
    let assignment = RankAssignment::from_environment();
    let assignment = assignment.map_err(|error| Error::Input(error.to_string()))?;
    Ok(assignment.filter(|assignment| assignment.world > 1))
}

#[cfg(feature = "mpi")]
fn cpu_processes() -> Result<Option<RankAssignment>> {
    rank_assignment()
}

#[cfg(feature = "mpi")]
fn open_cpu_processes(config: &Config) -> Result<Option<Box<dyn Machine>>> {
    let Some(assignment) = cpu_processes()? else { return Ok(None) };
    Ok(Some(Box::new(cpu_processes::CpuProcesses::open(config, &assignment)?)))
}

/// Refuses processes, which this program cannot connect.
#[cfg(not(feature = "mpi"))]
fn cpu_processes() -> Result<Option<RankAssignment>> {
    refuse_processes(ProcessRank::from_environment()).map(|()| None)
}

#[cfg(not(feature = "mpi"))]
fn open_cpu_processes(_: &Config) -> Result<Option<Box<dyn Machine>>> {
    cpu_processes().map(|_| None)
}

/// Refuses several processes on the CPU without MPI: each would run everything, and write to the same files.
#[cfg(any(test, not(feature = "mpi")))]
fn refuse_processes(
    found: std::result::Result<Option<ProcessRank>, RankAssignmentError>,
) -> Result<()> {
    match found {
        Ok(Some(ProcessRank { rank, world, .. })) if world > 1 => Err(Error::Input(format!(
            "this process was started as rank {rank} of {world}, but this program connects no processes on the CPU, \
             and each would train the whole run; build it with --features mpi, or start one process, whose ranks are \
             threads, and set them with --mesh"
        ))),
        Ok(_) => Ok(()),
        Err(error) => Err(Error::Input(error.to_string())),
    }
}

/// No machine, for a run that computes nothing: none at all, or GPUs of a described cluster.
struct NoMachine {
    own_rank: Option<usize>,
    cluster: Option<SizedCluster>,
}

impl Machine for NoMachine {
    fn backend(&self, _: usize) -> Result<Box<dyn Backend>> {
        let problem = match self.cluster {
            Some(_) => "--simulate: simulates a step, and trains nothing; leave it out",
            None => "--explain: lists collectives, and trains nothing; leave it out",
        };
        Err(Error::Input(problem.into()))
    }

    fn own_rank(&self) -> Option<usize> {
        self.own_rank
    }

    fn describe(&self) -> String {
        match &self.cluster {
            Some(SizedCluster { cluster, .. }) => format!("a simulated {} each", cluster.gpu.name),
            None => "no device".to_owned(),
        }
    }

    fn memory(&self) -> Option<f64> {
        let SizedCluster { cluster, gpus } = self.cluster.as_ref()?;
        Some(cluster.gpu.memory_of_rank(*gpus) * *gpus as f64)
    }

    fn peak_flops(&self, dtype: DType) -> Option<f64> {
        let SizedCluster { cluster, gpus } = self.cluster.as_ref()?;
        let devices = if cluster.gpu.is_shared() { 1 } else { *gpus };
        Some(cluster.gpu.peak_of(dtype).ok()?.value * devices as f64)
    }
}

#[cfg(feature = "cuda")]
fn open_gpus(config: &Config, assignment: Option<RankAssignment>) -> Result<Box<dyn Machine>> {
    let (mesh, nondeterministic) = (&config.mesh, config.nondeterministic);
    Ok(Box::new(match assignment {
        Some(assignment) => {
            let store = process_store::store_options(config, &assignment)?;
            Gpus::of_process(mesh, &assignment, &store, nondeterministic)?
        }
        None => Gpus::of_host(mesh, nondeterministic)?.with_timeout(config.comm_timeout.0),
    }))
}

#[cfg(feature = "cuda")]
fn count_gpus() -> Result<usize> {
    Gpus::count()
}

#[cfg(not(feature = "cuda"))]
fn open_gpus(_: &Config, _: Option<RankAssignment>) -> Result<Box<dyn Machine>> {
    Err(refuse_cuda())
}

#[cfg(not(feature = "cuda"))]
fn count_gpus() -> Result<usize> {
    Err(refuse_cuda())
}

#[cfg(not(feature = "cuda"))]
fn refuse_cuda() -> Error {
    Error::Input(
        "--device cuda: this program was built without CUDA; build it with --features cuda, or use --device cpu".into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_processes_are_refused() {
        let found = |variables: &[(&str, &str)]| {
            let of = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| value.to_string())
            };
            refuse_processes(ProcessRank::from_variables(&of)).map_err(|error| error.to_string())
        };
        // Also without an address or a local rank, which the CPU would not need.
        for (rank, world) in [
            ("RANK", "WORLD_SIZE"),
            ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
            ("PMI_RANK", "PMI_SIZE"),
            ("PALS_RANKID", "PMI_SIZE"),
            ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
            ("MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE"),
            ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
            ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
            ("HOROVOD_RANK", "HOROVOD_SIZE"),
            ("MPI_RANKID", "MPI_NRANKS"),
            ("JOB_COMPLETION_INDEX", "MESHWRIGHT_WORLD_SIZE"),
        ] {
            let text = found(&[(rank, "0"), (world, "4")]).unwrap_err();
            assert!(text.contains("started as rank 0 of 4"), "{text}");
            assert_eq!(
                found(&[(rank, "0"), (world, "0")]),
                Err(format!("{rank}=0 is not below {world}=0"))
            );
            assert_eq!(found(&[(rank, "0"), (world, "1")]), Ok(()));
            // Set for another purpose.
            assert_eq!(found(&[(rank, ""), (world, "")]), Ok(()));
        }
        let task = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4"), ("SLURM_STEP_ID", "0")];
        found(&task).unwrap_err();
        found(&task[..2]).unwrap();
        // A rank without the number of processes.
        for rank in ["PMIX_RANK", "ALPS_APP_PE", "MPI_LOCALRANKID"] {
            let text = found(&[(rank, "0")]).unwrap_err();
            let is_named = text.contains(&format!("has {rank}"));
            assert!(is_named && text.contains("train the whole run"), "{text}");
            assert_eq!(found(&[(rank, "0"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")]), Ok(()));
        }
        found(&[&task[..2], &[("PMIX_RANK", "0")]].concat()).unwrap_err();
        found(&[("RANK", "gold"), ("PMIX_RANK", "0")]).unwrap_err();
        let text = found(&[("JOB_COMPLETION_INDEX", "2")]).unwrap_err();
        assert!(text.contains("no MESHWRIGHT_WORLD_SIZE"), "{text}");
        // `RANK` alone may mean anything.
        assert_eq!([found(&[("RANK", "gold")]), found(&[])], [Ok(()), Ok(())]);
    }
}

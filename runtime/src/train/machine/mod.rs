//! The devices of a run: one CPU, or GPUs.

#[cfg(feature = "cuda")]
mod gpu_choice;
#[cfg(feature = "cuda")]
mod gpus;
mod host_memory;
#[cfg(feature = "cuda")]
mod message_path;

use crate::backend::cpu::CpuBackend;
use crate::backend::{Backend, DType};
use crate::comm::RankComms;
use crate::launch::{RankAssignment, RankAssignmentError};

use crate::train::config::{Config, DeviceChoice};
use crate::train::console::counted;
use crate::train::{Error, Result};

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

    /// Returns the memory of all ranks together, in bytes, if known.
    fn memory(&self) -> Option<f64>;

    /// Returns the peak FLOP/s of all ranks together in matmuls of `dtype`, if known; otherwise it is measured.
    fn peak_flops(&self, dtype: DType) -> Option<f64>;
}

#[cfg(feature = "cuda")]
pub use gpus::Gpus;

/// Opens the machine of `--device`.
///
/// # Errors
/// A device that is missing, and a failed rendezvous of processes.
pub fn open_machine(config: &Config) -> Result<Box<dyn Machine>> {
    let assignment = rank_assignment(config.device)?.filter(|assignment| assignment.world > 1);
    let world = config.mesh.world_size();
    match config.device {
        DeviceChoice::Cpu => {
            refuse_processes(assignment)?;
            Ok(Box::new(CpuMachine { threads: config.threads_per_rank(world), ranks: world }))
        }
        DeviceChoice::Cuda => open_gpus(config, assignment),
    }
}

/// Returns the number of ranks that this machine suggests: the processes that a launcher has started, else the GPUs of the
/// host.
///
/// # Errors
/// A CPU, whose cores any number of ranks can divide, and a missing driver.
pub fn suggested_ranks(device: DeviceChoice) -> Result<usize> {
    let assignment = rank_assignment(device)?.filter(|assignment| assignment.world > 1);
    match (assignment, device) {
        (Some(assignment), _) => Ok(assignment.world),
        (None, DeviceChoice::Cpu) => Err(Error::Input(
            "--mesh: `auto` counts GPUs; on the CPU name the ranks, such as `auto=4`".into(),
        )),
        (None, DeviceChoice::Cuda) => count_gpus(),
    }
}

/// Returns the rank assignment of this process, if a launcher has started several.
fn rank_assignment(device: DeviceChoice) -> Result<Option<RankAssignment>> {
    match RankAssignment::from_environment() {
        // Without MASTER_ADDR, a variable may have been set for another purpose.
        Err(RankAssignmentError::Missing { missing, .. })
            if device == DeviceChoice::Cpu && missing != "MASTER_ADDR" =>
        {
            Ok(None)
        }
        assignment => assignment.map_err(|error| Error::Input(error.to_string())),
    }
}

/// Refuses several processes on the CPU, where ranks are threads of one process: each process would run everything, and
/// write to the same files.
fn refuse_processes(assignment: Option<RankAssignment>) -> Result<()> {
    match assignment {
        Some(RankAssignment { rank, world, .. }) => Err(Error::Input(format!(
            "this process was started as rank {rank} of {world}, but on the CPU the ranks of a run are threads of one process; \
             start one process and set its ranks with --mesh, or use --device cuda"
        ))),
        None => Ok(()),
    }
}

/// The CPU of this machine, its cores divided among the ranks.
struct CpuMachine {
    threads: usize,
    ranks: usize,
}

impl Machine for CpuMachine {
    fn backend(&self, _: usize) -> Result<Box<dyn Backend>> {
        let threads = self.threads;
        let backend = CpuBackend::new(threads).map_err(|error| {
            Error::Input(format!("--threads {threads}: the threads could not be started: {error}"))
        })?;
        Ok(Box::new(backend))
    }

    fn describe(&self) -> String {
        let each = if self.ranks == 1 { "" } else { " each" };
        format!("{}{each}", counted(self.threads, "thread"))
    }

    fn memory(&self) -> Option<f64> {
        host_memory::available_memory()
    }

    fn peak_flops(&self, _: DType) -> Option<f64> {
        None
    }
}

#[cfg(feature = "cuda")]
fn open_gpus(config: &Config, assignment: Option<RankAssignment>) -> Result<Box<dyn Machine>> {
    let (mesh, nondeterministic) = (&config.mesh, config.nondeterministic);
    Ok(Box::new(match assignment {
        Some(assignment) => Gpus::of_process(mesh, &assignment, nondeterministic)?,
        None => Gpus::of_host(mesh, nondeterministic)?,
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
        let assignment = |world: &str| {
            let of = |name: &str| match name {
                "RANK" | "LOCAL_RANK" => Some("0".to_owned()),
                "WORLD_SIZE" => Some(world.to_owned()),
                "MASTER_ADDR" => Some("localhost".to_owned()),
                _ => None,
            };
            RankAssignment::from_variables(of).unwrap()
        };
        let text = refuse_processes(assignment("4")).unwrap_err().to_string();
        assert!(text.contains("started as rank 0 of 4"), "{text}");
        assert!(refuse_processes(None).is_ok());
    }
}

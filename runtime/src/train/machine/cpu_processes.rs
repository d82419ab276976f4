//! CPUs of one host or several, with a process for each rank, connected by MPI.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Backend, DType};
use crate::comm::mpi::{MpiEngine, MpiSettings, MpiStartError};
use crate::comm::{Peers, RankComms};
use crate::launch::{RankAssignment, Store};
use crate::train::config::Config;
use crate::train::console::counted;
use crate::train::{Error, Result};

use super::cpu::cpu_device;
use super::process_store::{of_store, open_store, store_options};
use super::processes::{require_ranks, share};
use super::{Machine, MachineDevice, host_memory, open_cpu};

/// The CPU of this process, and its connection to the others.
pub struct CpuProcesses {
    store: Arc<Store>,
    threads: usize,
    /// Time limit of calls.
    timeout: Duration,
    /// Ranks on this host.
    local_ranks: usize,
    /// Memory of all ranks together, in bytes, if it is known of every host.
    memory: Option<f64>,
}

impl CpuProcesses {
    /// Connects this process to the processes of the other ranks. Waits for all of them.
    ///
    /// # Errors
    /// A mesh with another number of ranks than processes, a run that needs all ranks in one process, and a failed
    /// rendezvous.
    pub fn open(config: &Config, assignment: &RankAssignment) -> Result<CpuProcesses> {
        require_ranks(&config.mesh, assignment)?;
        if config.preflight.is_some() {
            return Err(Error::Input(
                "--preflight: compares meshes whose ranks are threads of one process; start one process".into(),
            ));
        }
        let store = open_store(assignment, &store_options(config, assignment)?)?;
        let hosts = share(&store, "cores", &own_cores()).map_err(of_store)?;
        let hosts: Vec<Host> = hosts.iter().map(|text| Host::parse(text)).collect();
        let own = &hosts[assignment.rank];
        let local_ranks = hosts.iter().filter(|host| host.name == own.name).count();
        // A launcher may have given each rank cores of its own.
        let sharing = hosts.iter().filter(|host| host.has_cores_of(own)).count();
        let threads = config.threads_per_rank(sharing);
        let memory = memory_of_all(&hosts);
        let (store, timeout) = (Arc::new(store), config.comm_timeout.0);
        Ok(CpuProcesses { store, threads, timeout, local_ranks, memory })
    }
}

impl Machine for CpuProcesses {
    fn backend(&self, _: usize) -> Result<Box<dyn Backend>> {
        Ok(Box::new(open_cpu(self.threads)?))
    }

    fn own_rank(&self) -> Option<usize> {
        Some(self.store.assignment().rank)
    }

    fn store(&self) -> Option<&Arc<Store>> {
        Some(&self.store)
    }

    fn connect(&self, comms: RankComms, _: &dyn Backend) -> Result<RankComms> {
        let (shape, rank) = (*comms.shape(), comms.rank());
        self.store.report_progress(comms.progress_reader());
        let (timeout, peers) = (self.timeout, Arc::clone(&self.store) as Arc<dyn Peers>);
        let engine = MpiEngine::new(MpiSettings { shape, rank, timeout, peers });
        let engine = engine.map_err(|error| match error {
            MpiStartError::Failed(error) => Error::Comm(error),
            refused => Error::Input(refused.to_string()),
        });
        // Without an engine, which announces the end of its rank.
        Ok(comms.over(engine.inspect_err(|error| self.announce_failure(error))?))
    }

    fn describe(&self) -> String {
        let processes = counted(self.store.assignment().world, "process");
        format!("{processes}, {} each", counted(self.threads, "thread"))
    }

    fn device(&self) -> MachineDevice {
        cpu_device(self.local_ranks)
    }

    fn memory(&self) -> Option<f64> {
        self.memory
    }

    fn peak_flops(&self, _: DType) -> Option<f64> {
        None
    }
}

/// The host of a rank, as the rank publishes it.
#[derive(Debug, Clone, PartialEq)]
struct Host {
    name: String,
    /// The cores that the rank may use.
    cores: String,
    /// Available memory in bytes.
    memory: Option<f64>,
}

impl Host {
    fn parse(text: &[u8]) -> Host {
        let text = String::from_utf8_lossy(text);
        let mut lines = text.lines().map(str::to_owned);
        let mut next = || lines.next().unwrap_or_default();
        Host { name: next(), cores: next(), memory: next().parse().ok() }
    }

    /// Returns true if both ranks share their cores.
    fn has_cores_of(&self, other: &Host) -> bool {
        self.name == other.name && self.cores == other.cores
    }
}

/// Returns the name of this host, the cores that this process may use, and its available memory, one per line.
fn own_cores() -> Vec<u8> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let memory = host_memory().map_or(String::new(), |bytes| bytes.to_string());
    format!("{}\n{}\n{memory}\n", name.trim(), cores.unwrap_or_default().trim()).into_bytes()
}

/// Returns the memory of all ranks together, if each has as much as the one with the least. All processes get the same
/// number, which the choice of a mesh depends on.
fn memory_of_all(hosts: &[Host]) -> Option<f64> {
    let of_rank = |host: &Host| {
        let ranks = hosts.iter().filter(|other| other.name == host.name).count();
        Some(host.memory? / ranks as f64)
    };
    let shares: Option<Vec<f64>> = hosts.iter().map(of_rank).collect();
    Some(shares?.into_iter().fold(f64::INFINITY, f64::min) * hosts.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, cores: &str, memory: f64) -> Host {
        Host::parse(format!("{name}\n{cores}\n{memory}\n").as_bytes())
    }

    #[test]
    fn ranks_divide_the_cores_that_they_share() {
        // Bound to halves of host a, and not bound on host b.
        let hosts = [
            host("a", "0-3", 80.0),
            host("a", "4-7", 80.0),
            host("b", "0-7", 90.0),
            host("b", "0-7", 88.0),
        ];
        let sharing =
            |rank: usize| hosts.iter().filter(|host| host.has_cores_of(&hosts[rank])).count();
        assert_eq!([0, 1, 2, 3].map(sharing), [1, 1, 2, 2]);
        assert_eq!(memory_of_all(&hosts), Some(160.0));
        assert_eq!(memory_of_all(&[host("a", "0", 5.0), Host::parse(b"a\n0\n\n")]), None);
    }

    #[test]
    fn a_host_is_parsed_as_it_is_published() {
        let own = Host::parse(&own_cores());
        assert!(!own.name.is_empty() && !own.cores.is_empty(), "{own:?}");
        assert_eq!(own.memory.is_some(), host_memory().is_some());
    }
}

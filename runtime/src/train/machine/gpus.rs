//! GPUs, and the NCCL communicators between them.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Backend, DType};
use crate::comm::{LaunchOptions, Peers, RankComms, nccl};
use crate::launch::{RankAssignment, Store, StoreOptions};
use crate::layout::AxisSet;
use crate::mesh::MeshShape;
use crate::train::{Error, Result};
use meshwright_cuda::cudnn::{CudnnOptions, ScratchLimit};
use meshwright_cuda::native::{NativeDriver, NativeOptions, devices, peak_flops};
use meshwright_cuda::{
    ATTENTION_BIAS, CudaBackend, Driver, KernelSource, PLAIN_ATTENTION, PROFILE_VARIABLE, Profile,
    SOURCES,
};

use super::message_path::{message_path, require_one_message_path};
use super::process_store::{of_store, open_store};
use super::processes::require_ranks;
use super::{Machine, MachineDevice, gpu_choice};

/// GPUs, with one driver per rank. Ranks whose drivers are of the same device share it.
pub struct Gpus {
    drivers: Vec<Arc<dyn Driver>>,
    devices: usize,
    /// Smallest device memory of any rank, in bytes. All ranks plan with it.
    memory: Option<usize>,
    /// NCCL and the id of the run's communicator; `None` if all ranks share one device.
    nccl: Option<(Arc<dyn nccl::Library>, nccl::Id)>,
    /// The rank of this process and the TCP store, if every rank is a process.
    process: Option<(usize, Arc<Store>)>,
    /// The path of messages over NCCL.
    messages: nccl::MessagePath,
    /// Set if NCCL registers the buffers of collectives.
    registers: bool,
    /// Times of driver calls, if they are measured.
    profile: Option<Arc<Profile>>,
    /// Time limit of calls over NCCL.
    timeout: Duration,
}

/// The environment variable that registers the buffers of collectives with NCCL if set to 1.
const REGISTER: &str = "MESHWRIGHT_NCCL_REGISTER";

impl Gpus {
    /// Creates the machine from one driver per rank, for `devices` devices of the same model.
    pub fn new(drivers: Vec<Arc<dyn Driver>>, devices: usize) -> Gpus {
        let memory = drivers.iter().map(|driver| driver.properties().memory).min();
        Gpus {
            drivers,
            devices,
            memory,
            nccl: None,
            process: None,
            messages: nccl::MessagePath::default(),
            registers: false,
            profile: None,
            timeout: LaunchOptions::default().timeout,
        }
    }

    /// Sets the time limit of calls between ranks. That of a process is set by its store.
    pub fn with_timeout(self, timeout: Duration) -> Gpus {
        Gpus { timeout, ..self }
    }

    /// Measures the device time of each call, and writes the times to `file` at the end. Turns CUDA graphs off.
    pub fn profiled(self, file: PathBuf) -> Gpus {
        Gpus { profile: Some(Profile::new(file)), ..self }
    }

    /// Measures times if the environment variable is set. All processes but that of rank 0 add their rank to the file
    /// name.
    fn profiled_by_environment(self) -> Gpus {
        let Some(file) = env::var_os(PROFILE_VARIABLE).filter(|file| !file.is_empty()) else {
            return self;
        };
        let rank = self.process.as_ref().map_or(0, |(rank, _)| *rank);
        self.profiled(file_of_process(Path::new(&file), rank))
    }

    /// Returns the number of GPUs of this host.
    ///
    /// # Errors
    /// A missing driver.
    pub fn count() -> Result<usize> {
        Ok(devices().map_err(refused)?.len())
    }

    /// Opens the GPUs of this host for the ranks of `mesh`: one for each, or one for all. `nondeterministic` algorithms
    /// are faster, and their results differ in their last bits from run to run.
    ///
    /// # Errors
    /// A missing driver or library, several GPUs that are fewer than ranks, and message settings that are refused.
    pub fn of_host(mesh: &MeshShape, nondeterministic: bool) -> Result<Gpus> {
        let (ranks, messages) = (mesh.world_size(), message_path(mesh).map_err(refused)?);
        let count = Gpus::count()?;
        if count > 1 && count < ranks {
            return Err(Error::Input(format!(
                "--device cuda: there are {count} GPUs for {ranks} ranks; use a --mesh of at most {count} ranks, or \
                 one GPU for all ranks (CUDA_VISIBLE_DEVICES=0), which is slow"
            )));
        }
        let used = count.min(ranks);
        // Ranks that share a device share its driver, with its compiled kernels, plans and autotuning results.
        let drivers = (0..used)
            .map(|ordinal| open_driver(ordinal, ranks.div_ceil(used), nondeterministic))
            .collect::<Result<Vec<_>>>()?;
        preload_kernels(&drivers)?;
        let shared = |rank: usize| Arc::clone(&drivers[rank % used]) as Arc<dyn Driver>;
        let drivers = (0..ranks).map(shared).collect();
        let mut gpus = Gpus::new(drivers, used);
        if gpus.devices > 1 {
            let library = Arc::new(nccl::RealLibrary::new().map_err(refused)?);
            let id = nccl::Library::new_id(&*library).map_err(refused)?;
            gpus.nccl = Some((library, id));
            (gpus.messages, gpus.registers) = (messages, env_switch(REGISTER)?);
        }
        Ok(gpus.profiled_by_environment())
    }

    /// Opens the GPU of this process, the rank of `mesh` with `assignment`. Waits for the rendezvous of all processes.
    ///
    /// # Errors
    /// A missing driver, library or GPU, a mesh with another number of ranks than processes, and a failed rendezvous.
    pub fn of_process(
        mesh: &MeshShape,
        assignment: &RankAssignment,
        store: &StoreOptions,
        nondeterministic: bool,
    ) -> Result<Gpus> {
        require_ranks(mesh, assignment)?;
        let (registers, shares) = (env_switch(REGISTER)?, env_switch(gpu_choice::SHARE)?);
        let is_chosen = env::var_os(gpu_choice::VISIBLE).is_some_and(|gpus| !gpus.is_empty());
        let count = Gpus::count()?;
        let own = gpu_choice::choose_gpu(assignment.local_rank, count, is_chosen, shares);
        let driver = open_driver(own.map_err(refused)?, 1, nondeterministic)?;
        preload_kernels(std::slice::from_ref(&driver))?;
        let library = Arc::new(nccl::RealLibrary::new().map_err(refused)?);
        let mut gpus = Gpus::in_process(mesh, assignment, store, driver, library)?;
        gpus.registers = registers;
        if shares {
            gpus.devices = gpus.devices.min(count);
        }
        Ok(gpus)
    }

    /// Creates the machine of this process, the rank of `mesh` with `assignment`, from the driver of its device and the
    /// NCCL library. Waits for the rendezvous of all processes.
    ///
    /// # Errors
    /// A mesh with another number of ranks than processes, a failed rendezvous, and message settings that are refused,
    /// or differ from other processes.
    pub fn in_process(
        mesh: &MeshShape,
        assignment: &RankAssignment,
        options: &StoreOptions,
        driver: Arc<dyn Driver>,
        library: Arc<dyn nccl::Library>,
    ) -> Result<Gpus> {
        const KEY: &str = "communicator of all ranks";
        require_ranks(mesh, assignment)?;
        let messages = message_path(mesh).map_err(refused)?;
        let store = open_store(assignment, options)?;
        if assignment.rank == 0 {
            let id = library.new_id().map_err(refused)?;
            store.set(KEY, &id).map_err(of_store)?;
        }
        let id: nccl::Id = store.get(KEY).map_err(of_store)?.try_into().map_err(|_| {
            refused("rank 0 published an id of another length; start the same program on all hosts")
        })?;
        let mut gpus = Gpus::new(vec![driver], assignment.world);
        (gpus.messages, gpus.timeout) = (messages, options.timeout);
        require_one_message_path(&store, assignment, messages).map_err(refused)?;
        gpus.memory = Some(least_memory(&store, assignment, gpus.memory.unwrap_or_default())?);
        gpus.nccl = Some((library, id));
        gpus.process = Some((assignment.rank, Arc::new(store)));
        Ok(gpus.profiled_by_environment())
    }
}

impl Machine for Gpus {
    fn backend(&self, rank: usize) -> Result<Box<dyn Backend>> {
        let index = if self.process.is_some() { 0 } else { rank };
        let driver = self.drivers.get(index).ok_or_else(|| {
            let ranks = self.drivers.len();
            Error::Input(format!("rank {rank} has no GPU: there are drivers for {ranks} ranks"))
        })?;
        let driver = Arc::clone(driver);
        let driver = match &self.profile {
            Some(profile) => profile.driver(driver, rank),
            None => driver,
        };
        Ok(Box::new(CudaBackend::new(driver)))
    }

    fn own_rank(&self) -> Option<usize> {
        self.process.as_ref().map(|(rank, _)| *rank)
    }

    fn store(&self) -> Option<&Arc<Store>> {
        self.process.as_ref().map(|(_, store)| store)
    }

    fn connect(&self, comms: RankComms, backend: &dyn Backend) -> Result<RankComms> {
        let (Some((library, id)), Some(device)) = (&self.nccl, backend.device()) else {
            return Ok(comms);
        };
        let peers = match &self.process {
            Some((_, store)) => {
                store.report_progress(comms.progress_reader());
                Arc::clone(store) as Arc<dyn Peers>
            }
            None => comms.peers(),
        };
        let (shape, rank) = (*comms.shape(), comms.rank());
        let (messages, registers, timeout) = (self.messages, self.registers, self.timeout);
        let expected = match &self.process {
            Some((_, store)) => expected_groups(store, rank, comms.expected_groups())?,
            None => None,
        };
        let settings =
            nccl::NcclSettings { shape, rank, timeout, peers, messages, registers, expected };
        let engine = nccl::NcclEngine::new(settings, Arc::clone(library), device, id)?;
        Ok(comms.over(engine))
    }

    fn cuda_graph_obstacle(&self) -> Option<String> {
        let of_process = if self.process.is_none() { self.devices } else { 1 };
        let uses_nccl = self.nccl.is_some() && of_process > 1;
        graph_obstacle(self.profile.is_some(), uses_nccl).map(str::to_owned)
    }

    fn describe(&self) -> String {
        let name = self.drivers.first().map_or("no GPU", |driver| &driver.properties().name);
        match (self.devices, self.drivers.len()) {
            (1, 0 | 1) => name.to_owned(),
            (1, _) => format!("one {name} for all"),
            (devices, _) => format!("{devices} x {name}"),
        }
    }

    fn device(&self) -> MachineDevice {
        let properties = self.drivers.first().map(|driver| driver.properties());
        MachineDevice {
            name: properties.map_or_else(|| self.describe(), |own| own.name.clone()),
            units: properties.map_or(1, |own| own.multiprocessors as usize),
            is_gpu: true,
            ranks_each: self.drivers.len().div_ceil(self.devices.max(1)),
        }
    }

    fn memory(&self) -> Option<f64> {
        Some(self.memory? as f64 * self.devices as f64)
    }

    fn peak_flops(&self, dtype: DType) -> Option<f64> {
        let name = &self.drivers.first()?.properties().name;
        Some(peak_flops(name, dtype)? * self.devices as f64)
    }
}

/// Opens the driver of a device for `ranks` ranks.
fn open_driver(ordinal: usize, ranks: usize, nondeterministic: bool) -> Result<Arc<NativeDriver>> {
    let scratch = ScratchLimit { ranks, ..ScratchLimit::default() };
    let attention = CudnnOptions { deterministic: !nondeterministic, scratch };
    let options =
        NativeOptions { allow_nondeterministic: nondeterministic, attention: Some(attention) };
    NativeDriver::with_options(ordinal, options).map_err(refused)
}

/// Returns the smallest device memory of any rank, given that this rank's device has `own` bytes.
fn least_memory(store: &Store, assignment: &RankAssignment, own: usize) -> Result<usize> {
    let key = |rank: usize| format!("device memory of rank {rank}");
    store.set(&key(assignment.rank), &(own as u64).to_le_bytes()).map_err(of_store)?;
    (0..assignment.world).try_fold(own, |least, rank| {
        let bytes = store.get(&key(rank)).map_err(of_store)?;
        let bytes: [u8; 8] = bytes.try_into().map_err(|_| {
            refused(format!(
                "rank {rank} published no memory size; start the same program on all hosts"
            ))
        })?;
        Ok(least.min(u64::from_le_bytes(bytes) as usize))
    })
}

/// Returns the process groups that rank 0 expects, as another rank might expect others.
fn expected_groups(
    store: &Arc<Store>,
    rank: usize,
    own: Option<&BTreeSet<AxisSet>>,
) -> Result<Option<nccl::ExpectedGroups>> {
    const KEY: &str = "process groups";
    if rank == 0 {
        let numbers = own.map(|axes| axes.iter().map(|axes| axes.number() as u8).collect());
        let numbers: Vec<u8> = numbers.unwrap_or_default();
        store.set(KEY, &numbers).map_err(of_store)?;
    }
    let numbers = store.get(KEY).map_err(of_store)?;
    let axes: BTreeSet<AxisSet> =
        numbers.into_iter().map(|number| AxisSet::from_number(number.into())).collect();
    let store = Arc::clone(store);
    Ok((!axes.is_empty()).then_some(nccl::ExpectedGroups { axes, store }))
}

/// Compiles the kernels that any run may need, in parallel. All devices are of the same model, so the others find the
/// code of the first one in the cache.
fn preload_kernels(drivers: &[Arc<NativeDriver>]) -> Result<()> {
    for driver in drivers {
        // The attention kernels take the longest to compile, and are rarely needed if cuDNN is available.
        let has_attention = driver.attention().is_some();
        let of_attention =
            |source: &KernelSource| *source == PLAIN_ATTENTION || *source == ATTENTION_BIAS;
        let is_needed = |source: &&KernelSource| !has_attention || !of_attention(source);
        let sources: Vec<_> = SOURCES.iter().copied().filter(is_needed).collect();
        driver.preload(&sources).map_err(refused)?;
    }
    Ok(())
}

/// Returns `profile.csv` for rank 0, and `profile.rank1.csv` for rank 1.
fn file_of_process(file: &Path, rank: usize) -> PathBuf {
    if rank == 0 {
        return file.to_path_buf();
    }
    let extension = file.extension().unwrap_or_default().to_string_lossy();
    file.with_extension(format!("rank{rank}.{extension}").trim_end_matches('.'))
}

/// Returns the reason why CUDA graphs are off: times of calls are measured, or NCCL connects GPUs of one process.
fn graph_obstacle(is_profiled: bool, connects_threads: bool) -> Option<&'static str> {
    match (is_profiled, connects_threads) {
        (true, _) => Some("MESHWRIGHT_PROFILE times every call"),
        (false, true) => Some(
            "NCCL calls in CUDA graphs may deadlock if one process has several GPUs; start a process for each GPU, as \
             torchrun does",
        ),
        (false, false) => None,
    }
}

/// Returns true if an environment variable is set to 1.
fn env_switch(name: &str) -> Result<bool> {
    match env::var(name).as_deref() {
        Err(_) | Ok("" | "0") => Ok(false),
        Ok("1") => Ok(true),
        Ok(other) => Err(refused(format!("{name}={other} is neither 0 nor 1"))),
    }
}

fn refused(reason: impl std::fmt::Display) -> Error {
    Error::Input(format!("--device cuda: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_named_by_rank() {
        let of = |file: &str, rank| file_of_process(Path::new(file), rank);
        assert_eq!(of("out/profile.csv", 0), Path::new("out/profile.csv"));
        assert_eq!(of("out/profile.csv", 3), Path::new("out/profile.rank3.csv"));
        assert_eq!(of("profile", 1), Path::new("profile.rank1"));
    }

    /// Several GPUs of one process have no CUDA graphs; one GPU has.
    #[test]
    fn graphs_are_off_for_a_reason() {
        assert_eq!(graph_obstacle(false, false), None);
        assert!(graph_obstacle(true, true).unwrap().contains(PROFILE_VARIABLE));
        assert!(graph_obstacle(false, true).unwrap().contains("a process for each GPU"));
        assert_eq!(Gpus::new(Vec::new(), 8).cuda_graph_obstacle(), None);
    }
}

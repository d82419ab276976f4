//! GPUs as the machine of a run.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backend::cuda::cudnn::{CudnnOptions, ScratchLimit};
use crate::backend::cuda::native::{NativeDriver, NativeOptions, devices, peak_flops};
use crate::backend::cuda::{
    CudaBackend, Driver, PLAIN_ATTENTION, PROFILE_VARIABLE, Profile, SOURCES, Source,
};
use crate::backend::{Backend, DType};
use crate::comm::{LaunchOptions, Peers, RankComms, nccl};
use crate::launch::{Place, Store};
use crate::mesh::MeshShape;
use crate::train::{Error, Result};

use super::{Machine, choice};

/// GPUs, with the driver of each rank. Ranks with drivers of one device share it.
pub struct Gpus {
    drivers: Vec<Arc<dyn Driver>>,
    devices: usize,
    /// Bytes of the device of any rank that has least, from which every rank plans alike.
    memory: Option<usize>,
    /// What connects devices, and what the ranks find each other by; none: all ranks share one device.
    between: Option<(Arc<dyn nccl::Library>, nccl::Id)>,
    /// Where every rank is a process: that of this one, and the store of all.
    process: Option<(usize, Arc<Store>)>,
    /// Whether what connects devices is told of memory that is used again and again.
    registers: bool,
    /// Where times of calls go, if they are measured.
    profile: Option<Arc<Profile>>,
}

/// Set to 1, lets NCCL know the memory of collectives.
const REGISTER: &str = "MESHWRIGHT_NCCL_REGISTER";

impl Gpus {
    /// One driver for each rank, all of them of the same kind of device, of which there are `devices`.
    pub fn new(drivers: Vec<Arc<dyn Driver>>, devices: usize) -> Gpus {
        let memory = drivers.iter().map(|driver| driver.properties().memory).min();
        Gpus {
            drivers,
            devices,
            memory,
            between: None,
            process: None,
            registers: false,
            profile: None,
        }
    }

    /// With the device's time for each call measured, and written to `file` when everything is given back. Steps are not
    /// recorded then.
    pub fn profiled(self, file: PathBuf) -> Gpus {
        Gpus { profile: Some(Profile::new(file)), ..self }
    }

    /// As the environment asks for it. Processes beside that of rank 0 put their numbers before the ending of the file.
    fn profiled_if_asked(self) -> Gpus {
        let Some(file) = env::var_os(PROFILE_VARIABLE).filter(|file| !file.is_empty()) else {
            return self;
        };
        let rank = self.process.as_ref().map_or(0, |(rank, _)| *rank);
        self.profiled(file_of_process(Path::new(&file), rank))
    }

    /// The GPUs of this host for `ranks` ranks: one for each, or one for all. `nondeterministic` ways are faster, and their
    /// results differ in their last bits from run to run.
    ///
    /// # Errors
    /// Without the driver or a library, or with neither one GPU nor one for each rank.
    pub fn of_host(ranks: usize, nondeterministic: bool) -> Result<Gpus> {
        let count = devices().map_err(refused)?.len();
        if count > 1 && count < ranks {
            return Err(Error::Input(format!(
                "--device cuda: there are {count} GPUs for {ranks} ranks; use a --mesh of at most {count} ranks, or one GPU \
                 for all of them (CUDA_VISIBLE_DEVICES=0), which is slow"
            )));
        }
        let used = count.min(ranks);
        // Ranks that share a device share its driver, which keeps kernels, plans and what was found out by trying.
        let drivers = (0..used)
            .map(|ordinal| open(ordinal, ranks.div_ceil(used), nondeterministic))
            .collect::<Result<Vec<_>>>()?;
        preload(&drivers)?;
        let shared = |rank: usize| Arc::clone(&drivers[rank % used]) as Arc<dyn Driver>;
        let drivers = (0..ranks).map(shared).collect();
        let mut gpus = Gpus::new(drivers, used);
        if gpus.devices > 1 {
            let library = Arc::new(nccl::RealLibrary::new().map_err(refused)?);
            let id = nccl::Library::new_id(&*library).map_err(refused)?;
            gpus.between = Some((library, id));
            gpus.registers = switch(REGISTER)?;
        }
        Ok(gpus.profiled_if_asked())
    }

    /// The GPU of this process, which `place` says to be one rank of `mesh`. Waits for the others.
    ///
    /// # Errors
    /// Without the driver, a library or the GPU, where the mesh has not as many ranks as processes were started, and where
    /// they do not find each other.
    pub fn of_process(mesh: &MeshShape, place: &Place, nondeterministic: bool) -> Result<Gpus> {
        require_ranks(mesh, place)?;
        let (registers, shares) = (switch(REGISTER)?, switch(choice::SHARE)?);
        let is_chosen = env::var_os(choice::VISIBLE).is_some_and(|gpus| !gpus.is_empty());
        let count = devices().map_err(refused)?.len();
        let own = choice::ordinal(place.local_rank, count, is_chosen, shares);
        let driver = open(own.map_err(refused)?, 1, nondeterministic)?;
        preload(std::slice::from_ref(&driver))?;
        let library = Arc::new(nccl::RealLibrary::new().map_err(refused)?);
        let mut gpus = Gpus::in_process(mesh, place, driver, library)?;
        gpus.registers = registers;
        if shares {
            gpus.devices = gpus.devices.min(count);
        }
        Ok(gpus)
    }

    /// The device of `driver` as that of this process, which `place` says to be one rank of `mesh`, with a library that
    /// connects it with those of the others. Waits for them.
    ///
    /// # Errors
    /// Where the mesh has not as many ranks as processes were started, and where they do not find each other.
    pub fn in_process(
        mesh: &MeshShape,
        place: &Place,
        driver: Arc<dyn Driver>,
        library: Arc<dyn nccl::Library>,
    ) -> Result<Gpus> {
        const KEY: &str = "communicator of all ranks";
        require_ranks(mesh, place)?;
        let store = Store::open(place, LaunchOptions::default().timeout).map_err(refused)?;
        if place.rank == 0 {
            let id = library.new_id().map_err(refused)?;
            store.set(KEY, &id).map_err(refused)?;
        }
        let id: nccl::Id = store.get(KEY).map_err(refused)?.try_into().map_err(|_| {
            refused(
                "rank 0 gave an identifier of another length; start the same program on all hosts",
            )
        })?;
        let mut gpus = Gpus::new(vec![driver], place.world);
        gpus.memory = Some(least_memory(&store, place, gpus.memory.unwrap_or_default())?);
        gpus.between = Some((library, id));
        gpus.process = Some((place.rank, Arc::new(store)));
        Ok(gpus.profiled_if_asked())
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

    fn connect(&self, comms: RankComms, backend: &dyn Backend) -> Result<RankComms> {
        let (Some((library, id)), Some(device)) = (&self.between, backend.device()) else {
            return Ok(comms);
        };
        let peers = match &self.process {
            Some((_, store)) => Arc::clone(store) as Arc<dyn Peers>,
            None => comms.peers(),
        };
        let (shape, rank) = (*comms.shape(), comms.rank());
        let timeout = LaunchOptions::default().timeout;
        let registers = self.registers;
        let settings = nccl::NcclSettings { shape, rank, timeout, peers, registers };
        let engine = nccl::NcclEngine::new(settings, Arc::clone(library), device, id)?;
        Ok(comms.over(engine))
    }

    fn why_not_recorded(&self) -> Option<String> {
        // What is between the devices of one process is NCCL.
        let of_process = if self.process.is_none() { self.devices } else { 1 };
        let uses_nccl = self.between.is_some() && of_process > 1;
        hindrance(self.profile.is_some(), uses_nccl).map(str::to_owned)
    }

    fn describe(&self) -> String {
        let name = self.drivers.first().map_or("no GPU", |driver| &driver.properties().name);
        match (self.devices, self.drivers.len()) {
            (1, 0 | 1) => name.to_owned(),
            (1, _) => format!("one {name} for all"),
            (devices, _) => format!("{devices} x {name}"),
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

/// The driver of a device for `ranks` ranks.
fn open(ordinal: usize, ranks: usize, nondeterministic: bool) -> Result<Arc<NativeDriver>> {
    let scratch = ScratchLimit { ranks, ..ScratchLimit::default() };
    let attention = CudnnOptions { deterministic: !nondeterministic, scratch };
    let options =
        NativeOptions { allow_nondeterministic: nondeterministic, attention: Some(attention) };
    NativeDriver::with_options(ordinal, options).map_err(refused)
}

/// The least memory of any rank's device, where that of this one has `own` bytes.
fn least_memory(store: &Store, place: &Place, own: usize) -> Result<usize> {
    let key = |rank: usize| format!("device memory of rank {rank}");
    store.set(&key(place.rank), &(own as u64).to_le_bytes()).map_err(refused)?;
    (0..place.world).try_fold(own, |least, rank| {
        let bytes = store.get(&key(rank)).map_err(refused)?;
        let bytes: [u8; 8] = bytes.try_into().map_err(|_| {
            refused(format!("rank {rank} gave no size; start the same program on all hosts"))
        })?;
        Ok(least.min(u64::from_le_bytes(bytes) as usize))
    })
}

/// Compiles the kernels that every run may need, as many at once as there are processors. All devices are of one kind, so
/// that the others find the code of the first in its cache.
fn preload(drivers: &[Arc<NativeDriver>]) -> Result<()> {
    for driver in drivers {
        // Our own attention takes the longest to compile, and is rarely needed beside the vendor's.
        let has_attention = driver.attention().is_some();
        let is_needed = |source: &&Source| !has_attention || **source != PLAIN_ATTENTION;
        let sources: Vec<_> = SOURCES.iter().copied().filter(is_needed).collect();
        driver.preload(&sources).map_err(refused)?;
    }
    Ok(())
}

/// `profile.csv`, or `profile.rank1.csv` of another process than that of rank 0.
fn file_of_process(file: &Path, rank: usize) -> PathBuf {
    if rank == 0 {
        return file.to_path_buf();
    }
    let extension = file.extension().unwrap_or_default().to_string_lossy();
    file.with_extension(format!("rank{rank}.{extension}").trim_end_matches('.'))
}

/// Why steps are not recorded, where times of calls are measured, or NCCL connects GPUs of one process.
fn hindrance(is_profiled: bool, connects_threads: bool) -> Option<&'static str> {
    match (is_profiled, connects_threads) {
        (true, _) => Some("MESHWRIGHT_PROFILE times them one by one"),
        (false, true) => Some(
            "recorded calls of NCCL may wait for ever where one process has several GPUs; start a process for each GPU, as \
             torchrun does",
        ),
        (false, false) => None,
    }
}

/// Whether an environment variable is set to 1.
fn switch(name: &str) -> Result<bool> {
    match env::var(name).as_deref() {
        Err(_) | Ok("" | "0") => Ok(false),
        Ok("1") => Ok(true),
        Ok(other) => Err(refused(format!("{name}={other} is neither 0 nor 1"))),
    }
}

/// As many processes as ranks.
fn require_ranks(mesh: &MeshShape, place: &Place) -> Result<()> {
    let (ranks, world) = (mesh.world_size(), place.world);
    match ranks == world {
        true => Ok(()),
        false => Err(Error::Input(format!(
            "--mesh {mesh} has {ranks} ranks, but {world} processes were started; make them as many"
        ))),
    }
}

fn refused(reason: impl std::fmt::Display) -> Error {
    Error::Input(format!("--device cuda: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_have_profiles_of_their_own() {
        let of = |file: &str, rank| file_of_process(Path::new(file), rank);
        assert_eq!(of("out/profile.csv", 0), Path::new("out/profile.csv"));
        assert_eq!(of("out/profile.csv", 3), Path::new("out/profile.rank3.csv"));
        assert_eq!(of("profile", 1), Path::new("profile.rank1"));
    }

    /// Several GPUs of one process do not record their steps; one GPU does.
    #[test]
    fn what_is_not_recorded_has_a_reason() {
        assert_eq!(hindrance(false, false), None);
        assert!(hindrance(true, true).unwrap().contains(PROFILE_VARIABLE));
        assert!(hindrance(false, true).unwrap().contains("a process for each GPU"));
        assert_eq!(Gpus::new(Vec::new(), 8).why_not_recorded(), None);
    }
}

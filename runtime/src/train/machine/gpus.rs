//! GPUs as the machine of a run.

use std::sync::Arc;

use crate::backend::cuda::cudnn::CudnnOptions;
use crate::backend::cuda::native::{NativeDriver, NativeOptions, devices, peak_flops};
use crate::backend::cuda::{CudaBackend, Driver};
use crate::backend::{Backend, DType};
use crate::comm::{LaunchOptions, RankComms, nccl};
use crate::launch::{Place, Store};
use crate::mesh::MeshShape;
use crate::train::{Error, Result};

use super::Machine;

/// GPUs, with the driver of each rank. Ranks with drivers of one device share it.
pub struct Gpus {
    drivers: Vec<Arc<dyn Driver>>,
    devices: usize,
    /// What connects devices, and what the ranks find each other by; none: all ranks share one device.
    between: Option<(Arc<dyn nccl::Library>, nccl::Id)>,
    /// Where every rank is a process: that of this one, and the store of all.
    process: Option<(usize, Store)>,
}

impl Gpus {
    /// One driver for each rank, all of them of the same kind of device, of which there are `devices`.
    pub fn new(drivers: Vec<Arc<dyn Driver>>, devices: usize) -> Gpus {
        Gpus { drivers, devices, between: None, process: None }
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
        let driver =
            |rank: usize| -> Result<Arc<dyn Driver>> { open(rank % count, nondeterministic) };
        let drivers = (0..ranks).map(driver).collect::<Result<_>>()?;
        let mut gpus = Gpus::new(drivers, count.min(ranks));
        if gpus.devices > 1 {
            let library = Arc::new(nccl::RealLibrary::new().map_err(refused)?);
            let id = nccl::Library::new_id(&*library).map_err(refused)?;
            gpus.between = Some((library, id));
        }
        Ok(gpus)
    }

    /// The GPU of this process, which `place` says to be one rank of `mesh`. Waits for the others.
    ///
    /// # Errors
    /// Without the driver, a library or the GPU, where the mesh has not as many ranks as processes were started, and where
    /// they do not find each other.
    pub fn of_process(mesh: &MeshShape, place: Place, nondeterministic: bool) -> Result<Gpus> {
        let Place { rank, world, local_rank, .. } = place;
        if mesh.world_size() != world {
            return Err(Error::Input(format!(
                "--mesh {mesh} has {} ranks, but {world} processes were started; make them as many",
                mesh.world_size()
            )));
        }
        let count = devices().map_err(refused)?.len();
        let driver = open(local_rank % count.max(1), nondeterministic)?;
        let library = Arc::new(nccl::RealLibrary::new().map_err(refused)?);
        let store = Store::open(&place, LaunchOptions::default().timeout).map_err(refused)?;
        const KEY: &str = "communicator of all ranks";
        if rank == 0 {
            let id = nccl::Library::new_id(&*library).map_err(refused)?;
            store.set(KEY, &id).map_err(refused)?;
        }
        let id: nccl::Id = store.get(KEY).map_err(refused)?.try_into().map_err(|_| {
            refused(
                "rank 0 gave an identifier of another length; start the same program on all hosts",
            )
        })?;
        let mut gpus = Gpus::new(vec![driver], world);
        gpus.between = Some((library, id));
        gpus.process = Some((rank, store));
        Ok(gpus)
    }
}

impl Machine for Gpus {
    fn backend(&self, rank: usize) -> Result<Box<dyn Backend>> {
        let index = if self.process.is_some() { 0 } else { rank };
        let driver = self.drivers.get(index).ok_or_else(|| {
            let ranks = self.drivers.len();
            Error::Input(format!("rank {rank} has no GPU: there are drivers for {ranks} ranks"))
        })?;
        Ok(Box::new(CudaBackend::new(Arc::clone(driver))))
    }

    fn own_rank(&self) -> Option<usize> {
        self.process.as_ref().map(|(rank, _)| *rank)
    }

    fn connect(&self, comms: RankComms, backend: &dyn Backend) -> Result<RankComms> {
        let (Some((library, id)), Some(device)) = (&self.between, backend.device()) else {
            return Ok(comms);
        };
        let settings = nccl::Settings {
            shape: *comms.shape(),
            rank: comms.rank(),
            timeout: LaunchOptions::default().timeout,
        };
        let engine = nccl::Engine::new(settings, Arc::clone(library), device, id)?;
        Ok(comms.over(engine))
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
        let each = self.drivers.first()?.properties().memory;
        Some(each as f64 * self.devices as f64)
    }

    fn peak_flops(&self, dtype: DType) -> Option<f64> {
        let name = &self.drivers.first()?.properties().name;
        Some(peak_flops(name, dtype)? * self.devices as f64)
    }
}

fn open(ordinal: usize, nondeterministic: bool) -> Result<Arc<dyn Driver>> {
    let attention = CudnnOptions { deterministic: !nondeterministic, ..CudnnOptions::default() };
    let options = NativeOptions { any_bits: nondeterministic, attention: Some(attention) };
    Ok(NativeDriver::with_options(ordinal, options).map_err(refused)?)
}

fn refused(reason: impl std::fmt::Display) -> Error {
    Error::Input(format!("--device cuda: {reason}"))
}

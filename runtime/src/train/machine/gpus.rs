//! GPUs as the machine of a run.

use std::sync::Arc;

use crate::backend::cuda::cudnn::CudnnOptions;
use crate::backend::cuda::native::{NativeDriver, NativeOptions, devices, peak_flops};
use crate::backend::cuda::{CudaBackend, Driver, DriverError};
use crate::backend::{Backend, DType};
use crate::comm::{LaunchOptions, RankComms, nccl};
use crate::train::{Error, Result};

use super::Machine;

/// GPUs, with the driver of each rank. Ranks with drivers of one device share it.
pub struct Gpus {
    drivers: Vec<Arc<dyn Driver>>,
    devices: usize,
    /// What connects devices, and what the ranks find each other by; none: all ranks share one device.
    between: Option<(Arc<dyn nccl::Library>, nccl::Id)>,
}

impl Gpus {
    /// One driver for each rank, all of them of the same kind of device, of which there are `devices`.
    pub fn new(drivers: Vec<Arc<dyn Driver>>, devices: usize) -> Gpus {
        Gpus { drivers, devices, between: None }
    }

    /// The GPUs of this host for `ranks` ranks: one for each, or one for all. `nondeterministic` ways are faster, and their
    /// results differ in their last bits from run to run.
    ///
    /// # Errors
    /// Without the driver or a library, or with neither one GPU nor one for each rank.
    pub fn of_host(ranks: usize, nondeterministic: bool) -> Result<Gpus> {
        let refused = |error: DriverError| Error::Input(format!("--device cuda: {error}"));
        let count = devices().map_err(refused)?.len();
        if count > 1 && count < ranks {
            return Err(Error::Input(format!(
                "--device cuda: there are {count} GPUs for {ranks} ranks; use a --mesh of at most {count} ranks, or one GPU \
                 for all of them (CUDA_VISIBLE_DEVICES=0), which is slow"
            )));
        }
        let driver = |rank: usize| -> Result<Arc<dyn Driver>> {
            let attention =
                CudnnOptions { deterministic: !nondeterministic, ..CudnnOptions::default() };
            let options =
                NativeOptions { timed_products: nondeterministic, attention: Some(attention) };
            Ok(NativeDriver::with_options(rank % count, options).map_err(refused)?)
        };
        let drivers = (0..ranks).map(driver).collect::<Result<_>>()?;
        let mut gpus = Gpus::new(drivers, count.min(ranks));
        if gpus.devices > 1 {
            let library = Arc::new(nccl::RealLibrary::new().map_err(refused)?);
            let id = nccl::Library::new_id(&*library);
            let id = id.map_err(|error| Error::Input(format!("--device cuda: {error}")))?;
            gpus.between = Some((library, id));
        }
        Ok(gpus)
    }
}

impl Machine for Gpus {
    fn backend(&self, rank: usize) -> Result<Box<dyn Backend>> {
        let driver = self.drivers.get(rank).ok_or_else(|| {
            let ranks = self.drivers.len();
            Error::Input(format!("rank {rank} has no GPU: there are drivers for {ranks} ranks"))
        })?;
        Ok(Box::new(CudaBackend::new(Arc::clone(driver))))
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

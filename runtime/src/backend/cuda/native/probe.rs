//! What there is on this machine.

use std::path::PathBuf;

use super::api::{Api, cublaslt, cudnn, driver, nccl, nvrtc};
use super::context::devices;
use super::libraries::{Library, Loaded, Version};
use crate::backend::cuda::{DriverError, Properties};

/// A library that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Which one.
    pub library: Library,
    /// The version that it says it is of.
    pub version: Version,
    /// Its file.
    pub path: PathBuf,
}

/// What a rank can work with.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    /// The libraries that are there.
    pub libraries: Vec<Found>,
    /// What is missing of those that one rank does without: cuDNN (attention is computed by own kernels then) and NCCL
    /// (ranks are in one process then).
    pub missing: Vec<DriverError>,
    /// The devices that are visible; at least one.
    pub devices: Vec<Properties>,
}

/// Looks for each library; it never panics.
pub fn libraries() -> [(Library, Result<Found, DriverError>); 5] {
    fn found<A: Api>(
        loaded: Result<&'static Loaded<A>, DriverError>,
    ) -> (Library, Result<Found, DriverError>) {
        let library = A::LIBRARY;
        let found = loaded.map(|loaded| Found {
            library,
            version: loaded.version,
            path: loaded.path.clone(),
        });
        (library, found)
    }
    [found(driver()), found(nvrtc()), found(cublaslt()), found(cudnn()), found(nccl())]
}

/// What there is, or the first thing that is missing of what every rank needs; it never panics.
pub fn probe() -> Result<Probe, DriverError> {
    let mut probe = Probe { libraries: Vec::new(), missing: Vec::new(), devices: Vec::new() };
    for (library, found) in libraries() {
        match (library, found) {
            (_, Ok(found)) => probe.libraries.push(found),
            (Library::Cudnn | Library::Nccl, Err(error)) => probe.missing.push(error),
            (Library::Driver | Library::Nvrtc | Library::CublasLt, Err(error)) => {
                return Err(error);
            }
        }
    }
    probe.devices = devices()?;
    Ok(probe)
}

/// Whether a rank can work on a GPU of this machine; it never panics.
pub fn cuda_available() -> bool {
    probe().is_ok()
}

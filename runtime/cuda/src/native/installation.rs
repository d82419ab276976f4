//! Detection of the libraries and devices of this machine.

use std::path::PathBuf;

use super::api::{cublaslt, cudnn, driver, nccl, nvrtc};
use super::context::devices;
use super::libraries::{Api, Loaded};
use super::vendor_library::{VendorLibrary, Version};
use crate::{DeviceProperties, DriverError};

/// An installed library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundLibrary {
    /// The library.
    pub library: VendorLibrary,
    /// Version that the library reports.
    pub version: Version,
    /// Path of the library.
    pub path: PathBuf,
}

/// The CUDA installation of this machine.
#[derive(Debug, Clone, PartialEq)]
pub struct CudaInstallation {
    /// Installed libraries.
    pub libraries: Vec<FoundLibrary>,
    /// Errors of missing optional libraries: cuDNN (attention falls back to the project's own kernels) and NCCL (ranks
    /// then share one process).
    pub missing: Vec<DriverError>,
    /// Visible devices; at least one.
    pub devices: Vec<DeviceProperties>,
}

/// Looks for each library; never panics.
pub fn libraries() -> [(VendorLibrary, Result<FoundLibrary, DriverError>); 5] {
    fn found<A: Api>(
        loaded: Result<&'static Loaded<A>, DriverError>,
    ) -> (VendorLibrary, Result<FoundLibrary, DriverError>) {
        let library = A::LIBRARY;
        let found = loaded.map(|loaded| FoundLibrary {
            library,
            version: loaded.version,
            path: loaded.path.clone(),
        });
        (library, found)
    }
    [found(driver()), found(nvrtc()), found(cublaslt()), found(cudnn()), found(nccl())]
}

/// Returns the CUDA installation, or the first error of a required library; never panics.
pub fn probe() -> Result<CudaInstallation, DriverError> {
    let mut probe =
        CudaInstallation { libraries: Vec::new(), missing: Vec::new(), devices: Vec::new() };
    for (library, found) in libraries() {
        match (library, found) {
            (_, Ok(found)) => probe.libraries.push(found),
            (VendorLibrary::Cudnn | VendorLibrary::Nccl, Err(error)) => probe.missing.push(error),
            (
                VendorLibrary::Driver | VendorLibrary::Nvrtc | VendorLibrary::CublasLt,
                Err(error),
            ) => {
                return Err(error);
            }
        }
    }
    probe.devices = devices()?;
    Ok(probe)
}

/// Returns true if a rank can use a GPU of this machine; never panics.
pub fn cuda_available() -> bool {
    probe().is_ok()
}

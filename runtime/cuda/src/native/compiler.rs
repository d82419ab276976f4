//! Kernel compilation for one architecture through the on-disk cache.

use rayon::prelude::*;

use super::compile::{OPTIONS, architecture, compile, compiled_text, compiler_version};
use super::context::DeviceContext;
use super::disk_cache::{CacheKey, DiskCache};
use super::vendor_library::Version;
use crate::{DriverError, KernelSource};

/// Compiles sources for one architecture.
pub struct KernelCompiler {
    architecture: String,
    version: Version,
    cache: DiskCache,
}

impl KernelCompiler {
    /// Creates the compiler for the device of a context.
    pub fn new(context: &DeviceContext) -> Result<KernelCompiler, DriverError> {
        let version = compiler_version()?;
        // A driver loads code of compilers up to its own major version.
        if version.major > context.api.version.major {
            return Err(DriverError::Library(format!(
                "NVRTC {version} compiles code that the driver, for CUDA {}, cannot load: install a later driver, or \
                 NVRTC {}",
                context.api.version, context.api.version
            )));
        }
        let architecture = architecture(context.properties.capability)?;
        Ok(KernelCompiler { architecture, version, cache: DiskCache::from_environment() })
    }

    /// Creates the compiler for an architecture such as `sm_90a`, without a device.
    fn for_architecture(architecture: &str) -> Result<KernelCompiler, DriverError> {
        let (architecture, version) = (architecture.to_owned(), compiler_version()?);
        Ok(KernelCompiler { architecture, version, cache: DiskCache::from_environment() })
    }

    /// Returns the machine code of a source.
    pub fn machine_code(&self, source: &KernelSource) -> Result<Vec<u8>, DriverError> {
        let text = compiled_text(source);
        let key = CacheKey::of_code(source, &text, &self.architecture, self.version, &OPTIONS);
        if let Some(code) = self.cache.get(&key) {
            return Ok(code);
        }
        let code = compile(source, &self.architecture, &[])?.cubin;
        self.cache.put_code(&key, &code);
        Ok(code)
    }
}

/// Compiles sources in parallel into the cache of the environment, for an architecture such as `sm_90a`, so that a
/// process with the same version of NVRTC finds them there. Needs no device.
pub fn compile_into_cache(
    sources: &[&KernelSource],
    architecture: &str,
) -> Result<(), DriverError> {
    let compiler = KernelCompiler::for_architecture(architecture)?;
    sources.par_iter().try_for_each(|source| compiler.machine_code(source).map(drop))
}

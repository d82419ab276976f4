//! Kernels for one device, compiled or found in the cache.

use super::cache::{Cache, Key};
use super::compile::{OPTIONS, architecture, compile, compiler_version, text_of};
use super::context::Context;
use super::libraries::Version;
use crate::backend::cuda::{DriverError, Source};

/// Makes code for one architecture.
pub struct Compiler {
    architecture: String,
    version: Version,
    cache: Cache,
}

impl Compiler {
    /// For the device of a context.
    pub fn new(context: &Context) -> Result<Compiler, DriverError> {
        let version = compiler_version()?;
        // A driver loads code of compilers of its own major version, and of those before.
        if version.major > context.api.version.major {
            return Err(DriverError::Library(format!(
                "NVRTC {version} makes code that the driver, for CUDA {}, does not load: install a later driver, or NVRTC \
                 {}",
                context.api.version, context.api.version
            )));
        }
        let architecture = architecture(context.properties.capability)?;
        Ok(Compiler { architecture, version, cache: Cache::from_environment() })
    }

    /// Machine code of a source.
    pub fn code(&self, source: &Source) -> Result<Vec<u8>, DriverError> {
        let text = text_of(source);
        let key = Key::new(source, &text, &self.architecture, self.version, &OPTIONS);
        if let Some(code) = self.cache.get(&key) {
            return Ok(code);
        }
        let code = compile(source, &self.architecture, &[])?.cubin;
        self.cache.put(&key, &code);
        Ok(code)
    }
}

//! Attention by cuDNN on a device context.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use super::context::Context;
use super::memory;
use crate::backend::cuda::cudnn::{CudnnAttention, CudnnOptions, Host};
use crate::backend::cuda::{DriverError, Stream};

/// Creates attention by cuDNN on the device of a context; the error is the reason why it is not available.
pub fn attention(context: &Arc<Context>, options: CudnnOptions) -> Result<CudnnAttention, String> {
    let host = Arc::new(ContextHost(Arc::clone(context)));
    CudnnAttention::new(host, context.properties.capability, options)
}

struct ContextHost(Arc<Context>);

impl Host for ContextHost {
    fn make_current(&self) -> Result<(), DriverError> {
        self.0.enter()
    }

    fn raw_stream(&self, stream: Stream) -> Result<*mut c_void, DriverError> {
        Ok(stream.0 as *mut c_void)
    }

    fn unused(&self) -> Result<usize, DriverError> {
        self.0.enter()?;
        memory::unused(&self.0)
    }

    fn alloc(&self, stream: Stream, bytes: usize) -> Result<u64, DriverError> {
        self.0.enter()?;
        memory::alloc_scratch(&self.0, stream, bytes)
    }

    unsafe fn free(&self, stream: Stream, address: u64, bytes: usize) -> Result<(), DriverError> {
        self.0.synchronize()?;
        // SAFETY: all work is done, and the caller promises the rest.
        unsafe { memory::free_scratch(&self.0, stream, address, bytes) }
    }
}

impl fmt::Debug for ContextHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.properties.name)
    }
}

//! Attention by cuDNN on a device context.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use super::context::DeviceContext;
use super::memory;
use crate::cudnn::{CudnnAttention, CudnnHost, CudnnOptions};
use crate::{DriverError, Stream};

/// Creates attention by cuDNN on the device of a context; the error is the reason why it is not available.
pub fn cudnn_attention(
    context: &Arc<DeviceContext>,
    options: CudnnOptions,
) -> Result<CudnnAttention, String> {
    let host = Arc::new(ContextHost(Arc::clone(context)));
    CudnnAttention::new(host, context.properties.capability, options)
}

struct ContextHost(Arc<DeviceContext>);

impl CudnnHost for ContextHost {
    fn make_current(&self) -> Result<(), DriverError> {
        self.0.make_current()
    }

    fn raw_stream(&self, stream: Stream) -> Result<*mut c_void, DriverError> {
        Ok(stream.0 as *mut c_void)
    }

    fn free_memory(&self) -> Result<usize, DriverError> {
        self.0.make_current()?;
        memory::free_bytes(&self.0)
    }

    fn alloc(&self, stream: Stream, bytes: usize) -> Result<u64, DriverError> {
        self.0.make_current()?;
        memory::alloc_workspace(&self.0, stream, bytes)
    }

    unsafe fn free(&self, stream: Stream, address: u64, bytes: usize) -> Result<(), DriverError> {
        self.0.synchronize()?;
        // SAFETY: all work is done, and the caller promises the rest.
        unsafe { memory::free_workspace(&self.0, stream, address, bytes) }
    }
}

impl fmt::Debug for ContextHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.properties.name)
    }
}

//! The GPU backend.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend::{Backend, Device};

use super::driver::Driver;
use super::gpu::GpuContext;
use super::memory::GpuMemory;

/// The kernels of one rank on a GPU.
///
/// Each family of operations is implemented in its file under `ops`.
pub struct CudaBackend {
    gpu: Arc<GpuContext>,
    memory: Arc<GpuMemory>,
    flops: AtomicU64,
}

impl CudaBackend {
    /// Creates the backend of one rank on the device of `driver`.
    pub fn new(driver: Arc<dyn Driver>) -> CudaBackend {
        let gpu = GpuContext::new(driver);
        let memory = Arc::new(GpuMemory::new(Arc::clone(&gpu)));
        CudaBackend { gpu, memory, flops: AtomicU64::new(0) }
    }

    /// Returns the context of the rank on the device.
    pub fn gpu(&self) -> &GpuContext {
        &self.gpu
    }
}

impl Backend for CudaBackend {
    fn device(&self) -> Option<Arc<dyn Device>> {
        Some(Arc::clone(&self.memory) as Arc<dyn Device>)
    }

    fn threads(&self) -> usize {
        1
    }

    fn flops(&self) -> u64 {
        self.flops.load(Ordering::Relaxed)
    }

    fn count_flops(&self, flops: u64) {
        self.flops.fetch_add(flops, Ordering::Relaxed);
    }
}

//! A backend for dry runs, which allocates buffers but has no memory and computes nothing.
//!
//! A model that runs on it goes through the allocations of a real run, so the peaks of its
//! [`CachingAllocator`](crate::backend::CachingAllocator) are those that a run would have. Buffers of a dry run on the CPU
//! are reserved addresses: they can be read and written, but take memory only where something is written. Those of a dry
//! run on a device have no memory at all, and read as zeros.

mod device;
mod kernels;

use std::sync::Arc;

use super::{Backend, CudaKernel, Device, KernelArg, LaunchGrid};

use device::DryRunDevice;

/// Kernels that do nothing: what they would write keeps its values.
pub struct DryRunBackend {
    device: Option<Arc<dyn Device>>,
}

impl DryRunBackend {
    /// Creates the backend of a dry run on the CPU.
    pub fn cpu() -> DryRunBackend {
        DryRunBackend { device: None }
    }

    /// Creates the backend of a dry run on a device.
    pub fn on_device() -> DryRunBackend {
        DryRunBackend { device: Some(Arc::new(DryRunDevice::default())) }
    }
}

impl Backend for DryRunBackend {
    fn device(&self) -> Option<Arc<dyn Device>> {
        self.device.clone()
    }

    fn is_dry_run(&self) -> bool {
        true
    }

    unsafe fn launch_cuda_kernel(&self, _: &CudaKernel, _: LaunchGrid, _: &[KernelArg<'_>]) {}

    fn threads(&self) -> usize {
        1
    }

    fn flops(&self) -> u64 {
        0
    }

    fn count_flops(&self, _: u64) {}
}

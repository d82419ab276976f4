//! A backend for dry runs, which allocates buffers but has no memory and computes nothing.
//!
//! A model that runs on it goes through the allocations of a real run, so the peaks of its
//! [`CachingAllocator`](crate::backend::CachingAllocator) are those that a run would have. Buffers of a dry run on the CPU
//! are reserved addresses: they can be read and written, but take memory only where something is written. Those of a dry
//! run on a device have no memory at all, and read as zeros.

mod device;

use std::sync::Arc;

use super::Device;

use device::DryRunDevice;

/// Kernels that do nothing: their results keep the values that they have.
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

    /// Returns the device of the dry run; `None` on the CPU.
    pub(super) fn device(&self) -> Option<Arc<dyn Device>> {
        self.device.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{CachingAllocator, Category, CopyOps, DType};

    const TERABYTE: usize = 1 << 40;

    fn allocator(backend: &DryRunBackend) -> Arc<CachingAllocator> {
        CachingAllocator::for_dry_run(backend.device())
    }

    #[test]
    fn more_memory_than_any_machine_has_is_only_counted() {
        for backend in [DryRunBackend::cpu(), DryRunBackend::on_device()] {
            let allocator = allocator(&backend);
            let mut buffer = allocator.zeros(DType::F32, TERABYTE / 4, Category::Activations);
            backend.fill(buffer.view_mut(), 1.0);
            let last = buffer.view().slice(TERABYTE / 4 - 2..TERABYTE / 4);
            assert_eq!(last.to_vec::<f32>(), [0.0, 0.0]);
            let second = allocator.alloc(DType::Bf16, 8, Category::Offloaded);
            assert_eq!(second.view().on_host::<half::bf16>().len(), 8);
            drop((buffer, second));
            assert_eq!(
                allocator.peak().find(|(_, bytes)| *bytes == TERABYTE).map(|(of, _)| of),
                Some(Category::Activations)
            );
            assert!(allocator.live().all(|(_, bytes)| bytes == 0));
        }
    }

    /// Functions with code for the CPU write their results.
    #[test]
    fn memory_of_the_host_can_be_written() {
        let allocator = allocator(&DryRunBackend::cpu());
        let mut buffer = allocator.copy_of(&[1.0f32; 100], Category::Workspace);
        buffer.view_mut().slice(0..1).write(&[2.0f32]);
        assert_eq!(buffer.view().slice(0..2).to_vec::<f32>(), [2.0, 1.0]);
        drop(buffer);
        assert!(allocator.alloc(DType::F32, 0, Category::Workspace).view().is_empty());
    }

    #[test]
    fn addresses_run_out() {
        for backend in [DryRunBackend::cpu(), DryRunBackend::on_device()] {
            let allocator = allocator(&backend);
            let beyond = || allocator.alloc(DType::F32, usize::MAX / 8, Category::Activations);
            let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(beyond));
            assert!(payload.unwrap_err().is::<crate::backend::OutOfMemory>());
        }
    }
}

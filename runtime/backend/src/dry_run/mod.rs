//! A backend for dry runs, which allocates buffers but has no memory and computes nothing.
//!
//! A model that runs on it goes through the allocations of a real run, so the peaks of its
//! [`CachingAllocator`](crate::CachingAllocator) are those that a run would have. Its buffers are addresses
//! without memory, which read as zeros. Small buffers of a dry run on the CPU have memory, and so do others that code
//! of a user, such as a function with kernels of its own, reads or writes as slices, within a limit.

mod device;
mod touched_memory;

use std::sync::Arc;

use super::Device;

pub(super) use device::DryRunDevice;

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
    use crate::{CachingAllocator, Category, CopyOps, DType};

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

    /// Code of a user may do with slices of the host what it does in a run.
    #[test]
    fn larger_memory_of_the_host_exists_from_its_first_use_as_a_slice() {
        let allocator = allocator(&DryRunBackend::cpu());
        let len = 1 << 20;
        let mut buffer = allocator.copy_of(&vec![1.0f32; len], Category::Workspace);
        assert!(buffer.view().device().is_none() && !buffer.view().has_host_memory());
        assert_eq!(buffer.view().slice(len - 1..len).to_vec::<f32>(), [0.0]);
        buffer.view_mut().slice(len / 2..len).typed::<f32>()[3] = 2.0;
        assert_eq!(buffer.typed::<f32>()[len / 2 + 3], 2.0);
        buffer.view_mut().slice(7..8).write(&[5.0f32]);
        assert_eq!(buffer.view().slice(6..8).to_vec::<f32>(), [0.0, 5.0]);
        // Memory of buffers that are gone is used again.
        for _ in 0..100 {
            let mut other = allocator.alloc(DType::F32, 4 * len, Category::Workspace);
            other.typed_mut::<f32>()[0] = 1.0;
        }
        assert_eq!(buffer.typed::<f32>()[7], 5.0);
    }

    #[test]
    fn a_slice_beyond_the_limit_is_refused() {
        let allocator = allocator(&DryRunBackend::cpu());
        let buffer = allocator.alloc(DType::F32, TERABYTE / 4, Category::Activations);
        let read = || buffer.typed::<f32>().len();
        let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).unwrap_err();
        let text = payload.downcast::<String>().unwrap();
        assert!(text.contains("a dry run has no memory for a slice of 1.10 TB"), "{text}");
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
            assert!(payload.unwrap_err().is::<crate::OutOfMemory>());
        }
    }
}

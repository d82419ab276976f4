//! Workspaces of kernels.

use std::sync::{Arc, Weak};

use std::panic::{AssertUnwindSafe, catch_unwind};

use meshwright::backend::{Backend, CachingAllocator, Category, DType, OutOfMemory};
use meshwright_cuda::CudaBackend;
use meshwright_gpu_sim::{SimDevice, h100, not_checked_on_gpu};

const MIB: usize = 1 << 20;

#[test]
fn a_workspace_grows_and_is_freed() {
    if not_checked_on_gpu() {
        return;
    }
    let device = SimDevice::new(1);
    let cuda = CudaBackend::new(Arc::new(device.driver()));
    assert_eq!(cuda.gpu().workspace(0), 0);
    assert_eq!(device.live(), (0, 0));
    let first = cuda.gpu().workspace(100);
    assert_eq!((cuda.gpu().workspace(MIB), device.live()), (first, (MIB, 1)));
    let larger = cuda.gpu().workspace(2 * MIB + 1);
    assert_eq!((cuda.gpu().workspace(5), device.live()), (larger, (3 * MIB, 1)));
    drop(cuda);
    assert_eq!(device.live(), (0, 0));
}

#[test]
fn a_workspace_counts_as_memory_in_use() {
    if not_checked_on_gpu() {
        return;
    }
    let device = SimDevice::new(1);
    let cuda = CudaBackend::new(Arc::new(device.driver()));
    let allocator = CachingAllocator::on(cuda.device(), 8 * MIB);
    let held = allocator.alloc(DType::F32, MIB, Category::Activations);
    cuda.gpu().workspace(3 * MIB);
    let workspace = |(category, bytes)| (category == Category::Workspace).then_some(bytes);
    assert_eq!(allocator.live().find_map(workspace), Some(3 * MIB));
    assert_eq!(allocator.peak().find_map(workspace), Some(3 * MIB));
    assert_eq!((allocator.total_peak(), device.live().0), (7 * MIB, 7 * MIB));
    // One MiB is left within the limit, but not two.
    let two = || allocator.alloc(DType::F32, MIB / 2, Category::Gradients);
    let error = catch_unwind(AssertUnwindSafe(two)).unwrap_err().downcast::<OutOfMemory>().unwrap();
    assert_eq!((error.limit, error.live().map(|(_, bytes)| bytes).sum()), (Some(8 * MIB), 7 * MIB));
    let one = allocator.alloc(DType::F32, MIB / 4, Category::Gradients);
    assert_eq!((allocator.total_peak(), device.live().0), (8 * MIB, 8 * MIB));
    drop((held, one));
    assert_eq!(allocator.total_peak(), 8 * MIB);
}

#[test]
fn a_workspace_takes_the_place_of_what_is_kept() {
    if not_checked_on_gpu() {
        return;
    }
    let properties = meshwright_cuda::DeviceProperties { memory: 8 * MIB, ..h100() };
    let device = SimDevice::with(1, properties);
    let cuda = CudaBackend::new(Arc::new(device.driver()));
    let allocator = CachingAllocator::on(cuda.device(), usize::MAX);
    let cache: Weak<CachingAllocator> = Arc::downgrade(&allocator);
    cuda.device().expect("a GPU").set_memory_cache(cache);
    drop(allocator.alloc(DType::F32, 3 * MIB / 2, Category::Activations));
    assert_eq!(device.live().0, 6 * MIB);
    cuda.gpu().workspace(4 * MIB);
    assert_eq!(device.live().0, 4 * MIB);
}

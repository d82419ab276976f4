//! The GPU backend.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::bytes_of;

use meshwright_backend::{Backend, CudaKernel, Device, KernelArg, LaunchGrid};

use super::driver::{Driver, Grid, KernelSource};
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

    unsafe fn launch_cuda_kernel(
        &self,
        kernel: &CudaKernel,
        grid: LaunchGrid,
        args: &[KernelArg<'_>],
    ) {
        let addresses: Vec<u64> = args.iter().map(address_of).collect();
        let bytes: Vec<&[u8]> = args.iter().zip(&addresses).map(bytes_of_arg).collect();
        let source = KernelSource {
            name: Cow::Borrowed(kernel.name()),
            text: Cow::Borrowed(kernel.source()),
        };
        let LaunchGrid { blocks, threads, shared } = grid;
        // SAFETY: as the caller promises.
        unsafe {
            self.gpu.launch((&source, kernel.name()), Grid { blocks, threads, shared }, &bytes)
        };
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

/// Returns the device address of an argument; 0 if it is a scalar.
fn address_of(arg: &KernelArg<'_>) -> u64 {
    match arg {
        KernelArg::Read(view) => view.address() as u64,
        KernelArg::Write(view) => view.as_view().address() as u64,
        _ => 0,
    }
}

/// Returns the bytes of an argument, which is at `address` if it is not a scalar.
fn bytes_of_arg<'a>((arg, address): (&'a KernelArg<'_>, &'a u64)) -> &'a [u8] {
    match arg {
        KernelArg::Read(_) | KernelArg::Write(_) => bytes_of(address),
        KernelArg::F32(number) => bytes_of(number),
        KernelArg::I32(number) => bytes_of(number),
        KernelArg::U32(number) => bytes_of(number),
        KernelArg::U64(number) => bytes_of(number),
    }
}

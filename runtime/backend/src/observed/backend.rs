//! A backend whose kernels are observed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Backend, CudaKernel, DType, Device, KernelArg, LaunchGrid};

use super::bytes::dim;
use super::device::ObservedDevice;
use super::kernel::Launch;
use super::{Kernel, KernelObserver, KernelOp};

/// A backend that reports each kernel to an observer, and passes it on to another backend.
///
/// It counts the floating-point operations of kernels of a [dry run](crate::DryRunBackend), which has none itself.
pub struct ObservedBackend {
    pub(super) backend: Box<dyn Backend>,
    observer: Arc<dyn KernelObserver>,
    device: Option<Arc<dyn Device>>,
    flops: AtomicU64,
}

impl ObservedBackend {
    /// Observes the kernels of `backend`, and the work of its device.
    pub fn new(backend: Box<dyn Backend>, observer: Arc<dyn KernelObserver>) -> ObservedBackend {
        let device = backend.device().map(|device| -> Arc<dyn Device> {
            Arc::new(ObservedDevice::new(device, Arc::clone(&observer)))
        });
        ObservedBackend { backend, observer, device, flops: AtomicU64::new(0) }
    }

    /// Begins a launch, whose kernel may be noted later.
    pub(super) fn begin_launch(&self) -> Launch<'_> {
        Launch::begin(&*self.observer)
    }

    /// Notes the kernel of a launch.
    pub(super) fn note(&self, kernel: &Kernel) {
        self.flops.fetch_add(kernel.flops, Ordering::Relaxed);
        self.observer.kernel_launched(kernel);
    }

    /// Reports a kernel, whose launch ends when the guard is dropped.
    #[must_use]
    pub(super) fn report(&self, kernel: Kernel) -> Launch<'_> {
        let launch = self.begin_launch();
        self.note(&kernel);
        launch
    }

    /// Reports a kernel without floating-point operations of matmuls, by its dims, and the bytes that it reads and
    /// writes.
    pub(super) fn report_pass(
        &self,
        op: KernelOp,
        dims: [usize; 2],
        dtype: DType,
        [read, written]: [u64; 2],
    ) -> Launch<'_> {
        let [rows, cols] = dims.map(dim);
        self.report(Kernel { op, dims: [rows, cols, 0, 0], dtype, flops: 0, read, written })
    }
}

impl Backend for ObservedBackend {
    fn device(&self) -> Option<Arc<dyn Device>> {
        self.device.clone()
    }

    fn is_dry_run(&self) -> bool {
        self.backend.is_dry_run()
    }

    #[track_caller]
    unsafe fn launch_cuda_kernel(
        &self,
        kernel: &CudaKernel,
        grid: LaunchGrid,
        args: &[KernelArg<'_>],
    ) {
        let [mut read, mut written] = [0; 2];
        let mut elements = 0;
        for arg in args {
            match arg {
                KernelArg::Read(view) => read += view.byte_len() as u64,
                KernelArg::Write(view) => {
                    written += view.byte_len() as u64;
                    elements += view.len();
                }
                _ => {}
            }
        }
        let _launch =
            self.report_pass(KernelOp::CudaKernel, [elements, 0], DType::F32, [read, written]);
        // SAFETY: as the caller promises.
        unsafe { self.backend.launch_cuda_kernel(kernel, grid, args) }
    }

    fn threads(&self) -> usize {
        self.backend.threads()
    }

    fn flops(&self) -> u64 {
        if self.is_dry_run() { self.flops.load(Ordering::Relaxed) } else { self.backend.flops() }
    }

    fn count_flops(&self, flops: u64) {
        self.backend.count_flops(flops);
    }
}

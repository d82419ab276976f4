//! Memory of kernels beside their operands.

use std::sync::Arc;

use meshwright::backend::cuda::CudaBackend;
use meshwright_gpu_sim::SimDevice;

#[test]
fn a_workspace_grows_and_is_given_back() {
    const MIB: usize = 1 << 20;
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

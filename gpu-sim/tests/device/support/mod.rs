//! Targets of tests: the CPU backend, and simulated devices or a GPU.

use std::sync::Arc;

use meshwright::backend::cpu::CpuBackend;
pub use meshwright_conformance::{
    FLOATS, Operand, Target, assert_close, assert_same, epsilon, scaled, values,
};
use meshwright_cuda::{CudaBackend, Driver};
use meshwright_gpu_sim::{drivers, on_gpu};

/// Returns the CPU backend.
pub fn host() -> Target {
    Target::new(Arc::new(CpuBackend::new(1).expect("one thread starts nothing")))
}

/// Returns devices with different thread orders if simulated, with operands at the start of memory, at an aligned
/// offset, and not aligned.
pub fn devices() -> Vec<Target> {
    [(1, 0), (2, 8), (3, 3)].into_iter().map(|(seed, skew)| device(seed, skew)).collect()
}

/// Returns a simulated device, or the host's GPU if [`drivers`] selects it, with `skew` elements before every operand.
pub fn device(seed: u64, skew: usize) -> Target {
    device_with(drivers(seed, 1).swap_remove(0), skew)
}

/// Returns the device of a driver, with `skew` elements before every operand.
pub fn device_with(driver: Arc<dyn Driver>, skew: usize) -> Target {
    with_tolerance(Target::new(Arc::new(CudaBackend::new(driver))).with_skew(skew))
}

/// Adds tolerance for the functions of a GPU, unless devices are simulated.
fn with_tolerance(target: Target) -> Target {
    if !on_gpu() {
        return target;
    }
    let target = target.with_tolerance(4.0);
    if runs_cudnn() { target.with_log_tolerance(1e-4) } else { target }
}

/// Returns whether the device under test computes aligned bf16 attention by cuDNN.
pub fn runs_cudnn() -> bool {
    drivers(0, 1)[0].attention().is_some()
}

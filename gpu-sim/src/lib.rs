//! A simulated GPU for tests on machines without one.
//!
//! [`SimDriver`] implements [`Driver`] on the host. Kernels are the same `.cu` files that run on a GPU: the host's C++
//! compiler builds libraries of them (cached in `target/gpu-sim`); every thread of a block is a fiber. Errors that
//! occur sporadically on a GPU are provoked and reported:
//!
//! - Threads, blocks and streams run in an order drawn from a seed, as early or as late as the rules permit: a missing
//!   event shows as a wrong result for some seeds.
//! - Two threads that access the same shared memory without a barrier, at least one of them to write, are an error in
//!   any order.
//! - Shared memory and fresh device memory are filled with NaN, and an asynchronous copy completes only when it is
//!   waited for.
//! - Red zones before and after every allocation must stay intact; access beyond them, or to freed memory, is an error.
//!   Addresses must be aligned, and indices within their arrays.
//! - Host memory is accessed when a transfer executes, not when it is submitted.
//! - Threads that diverge before a barrier, or wait for threads that never arrive, are an error that names them.
//!
//! A kernel error is returned by the call that happened to run the kernel, and by every later call, as in CUDA.
//!
//! Not simulated: time, caches, bank conflicts, races in global memory (threads switch only at barriers, and blocks
//! only at their ends), and waiting between blocks. On other platforms than x86-64 Linux, access to unmapped memory
//! ends the process.

mod captures;
mod compiler;
mod device;
mod driver;
mod events;
mod fault;
mod graph;
mod kernel;
mod log;
mod matmul;
mod memory;
mod random;
mod stacks;
mod state;
mod task;

use std::env;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use meshwright_cuda::Driver;
use meshwright_cuda::native::{NativeDriver, NativeOptions};

pub use device::{SimDevice, h100};
pub use driver::SimDriver;
pub use log::Entry;

/// Environment variable that, set to `cuda`, runs tests of kernels and models on the first GPU of the host instead of a
/// simulated one.
pub const DEVICE_VARIABLE: &str = "MESHWRIGHT_TEST_DEVICE";

/// Environment variable that, set to `own`, runs the project's own attention kernels on a GPU instead of cuDNN.
pub const ATTENTION_VARIABLE: &str = "MESHWRIGHT_TEST_ATTENTION";

/// Returns true if tests run on a GPU, as selected by [`DEVICE_VARIABLE`].
pub fn on_gpu() -> bool {
    env::var_os(DEVICE_VARIABLE).is_some_and(|device| device == "cuda")
}

/// Returns true if the calling test must return immediately, because it needs a simulated device and tests run on a
/// GPU; prints that the test checked nothing. A machine with a GPU needs no C++ compiler for such a test.
pub fn not_checked_on_gpu() -> bool {
    on_gpu() && {
        not_checked("needs a simulated device");
        true
    }
}

/// Prints that the calling test, or a part of it, checked nothing, to stderr even if the output of tests is captured.
pub fn not_checked(reason: &str) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a test");
    // A closed stderr is no reason to fail.
    let _ = writeln!(std::io::stderr(), "NOT CHECKED, {name}: {reason}");
}

/// Returns drivers for `ranks` ranks that share one device: a simulated one, or as [`DEVICE_VARIABLE`] selects.
///
/// # Panics
/// If a GPU is requested and there is none.
pub fn drivers(seed: u64, ranks: usize) -> Vec<Arc<dyn Driver>> {
    if !on_gpu() {
        let device = SimDevice::new(seed);
        return (0..ranks).map(|_| Arc::new(device.driver()) as Arc<dyn Driver>).collect();
    }
    // One driver for all, because each has its own caches of kernels, plans and algorithms.
    static NATIVE: OnceLock<Arc<NativeDriver>> = OnceLock::new();
    let native = NATIVE.get_or_init(|| {
        let driver = NativeDriver::with_options(0, native_options());
        driver.unwrap_or_else(|error| panic!("{error}"))
    });
    vec![Arc::clone(native) as Arc<dyn Driver>; ranks]
}

/// Returns the options of a GPU's driver, as [`ATTENTION_VARIABLE`] selects.
fn native_options() -> NativeOptions {
    let default = NativeOptions::default();
    match env::var(ATTENTION_VARIABLE).as_deref() {
        Err(_) => default,
        Ok("own") => NativeOptions { attention: None, ..default },
        Ok(other) => panic!("{ATTENTION_VARIABLE}={other} is not `own`"),
    }
}

/// Locks a mutex, also after a test has panicked while holding it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

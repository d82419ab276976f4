//! A simulated GPU, for tests on machines without one.
//!
//! [`SimDriver`] implements [`Driver`] on the host. Kernels are the same `.cu` files
//! that a GPU runs: the host's C++ compiler makes libraries of them (kept in `target/gpu-sim`), in which every thread of
//! a block is a fiber. What goes wrong on a GPU only now and then goes wrong here soon, and tells so:
//!
//! - threads, blocks and streams go on in an order that a seed gives, as early or as late as the rules allow: a missing
//!   event shows as a wrong result for some seeds;
//! - threads that use the same shared memory with no barrier between them, one of them to write, are an error whatever
//!   the order;
//! - shared memory and fresh device memory are full of NaN, and an asynchronous copy is done when it is waited for;
//! - memory before and behind every allocation must stay as it was, and beyond that (and after it has been given back)
//!   there is none; addresses must be aligned, and indices must lie in their arrays;
//! - host memory is read and written when a transfer is done, not when it is asked for;
//! - threads that part before a barrier, or wait for others that do not come, are an error that names them.
//!
//! An error of a kernel comes back from the call that happened to run it, and from every call after it, as with CUDA.
//!
//! Not simulated: time, caches, banks of shared memory, races in global memory (threads change places at barriers alone,
//! and blocks at their ends), and waiting of one block for another. Where the processor is not an x86-64 one under Linux, the use of memory that is not
//! there ends the process.

mod compiler;
mod device;
mod driver;
mod fault;
mod graph;
mod kernel;
mod log;
mod memory;
mod product;
mod random;
mod stacks;
mod state;
mod task;

use std::env;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use meshwright::backend::cuda::Driver;
use meshwright::backend::cuda::native::{NativeDriver, NativeOptions};

pub use device::{SimDevice, h100};
pub use driver::SimDriver;
pub use log::{Call, Entry, Kind};

/// The environment variable that, set to `cuda`, runs tests of kernels and models on the first GPU of the host instead of
/// a simulated one.
pub const DEVICE_VARIABLE: &str = "MESHWRIGHT_TEST_DEVICE";

/// The environment variable that, set to `own`, runs the project's own attention kernels on a GPU instead of cuDNN.
pub const ATTENTION_VARIABLE: &str = "MESHWRIGHT_TEST_ATTENTION";

/// Returns whether tests run on a GPU, as [`DEVICE_VARIABLE`] says.
pub fn on_gpu() -> bool {
    env::var_os(DEVICE_VARIABLE).is_some_and(|device| device == "cuda")
}

/// Returns whether the calling test must return immediately because it needs a simulated device and tests run on a GPU;
/// prints that the test checked nothing. A machine with a GPU needs no C++ compiler for such a test.
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

/// Drivers for `ranks` ranks that share one device: a simulated one, or as [`DEVICE_VARIABLE`] says.
///
/// # Panics
/// Where a GPU is asked for and there is none.
pub fn drivers(seed: u64, ranks: usize) -> Vec<Arc<dyn Driver>> {
    if !on_gpu() {
        let device = SimDevice::new(seed);
        return (0..ranks).map(|_| Arc::new(device.driver()) as Arc<dyn Driver>).collect();
    }
    // One for all: each has caches of kernels, plans and algorithms of its own.
    static NATIVE: OnceLock<Arc<NativeDriver>> = OnceLock::new();
    let native = NATIVE.get_or_init(|| {
        let driver = NativeDriver::with_options(0, native_options());
        driver.unwrap_or_else(|error| panic!("{error}"))
    });
    vec![Arc::clone(native) as Arc<dyn Driver>; ranks]
}

/// Options of the driver of a GPU, as [`ATTENTION_VARIABLE`] says.
fn native_options() -> NativeOptions {
    let default = NativeOptions::default();
    match env::var(ATTENTION_VARIABLE).as_deref() {
        Err(_) => default,
        Ok("own") => NativeOptions { attention: None, ..default },
        Ok(other) => panic!("{ATTENTION_VARIABLE}={other} is not `own`"),
    }
}

/// A lock, also after a test that held it has panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! A simulated GPU, for tests on machines without one.
//!
//! [`SimDriver`] implements [`Driver`](meshwright::backend::cuda::Driver) on the host. Kernels are the same `.cu` files
//! that a GPU runs: the host's C++ compiler makes libraries of them (kept in `target/gpu-sim`), in which every thread of
//! a block is a fiber. What goes wrong on a GPU only now and then goes wrong here soon, and tells so:
//!
//! - threads, blocks and streams go on in an order that a seed gives, as early or as late as the rules allow: a missing
//!   barrier or event shows as a wrong result for some seeds;
//! - shared memory and fresh device memory are full of NaN, and an asynchronous copy is done when it is waited for;
//! - memory before and behind every allocation must stay as it was;
//! - host memory is read and written when a transfer is done, not when it is asked for;
//! - threads that part before a barrier, or wait for others that do not come, are an error that names them.
//!
//! An error of a kernel comes back from the call that happened to run it, and from every call after it, as with CUDA.
//!
//! Not simulated: time, caches, banks of shared memory, the memory model (threads change places at barriers alone), and
//! waiting of one block for another.

mod compiler;
mod device;
mod driver;
mod graph;
mod kernel;
mod log;
mod memory;
mod random;
mod stacks;
mod state;
mod task;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use device::{SimDevice, h100};
pub use driver::SimDriver;
pub use log::{Call, Entry, Kind};

/// A lock, also after a test that held it has panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

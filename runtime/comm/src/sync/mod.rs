//! Waiting on shared state: a monitor that spins before it sleeps, and deadlock detection over all of them.
//!
//! The primitives come from the standard library, or from `loom`, which explores the interleavings of threads.

mod deadlock;
mod monitor;

pub use deadlock::DeadlockDetector;
pub use monitor::{Guard, Monitor};

#[cfg(loom)]
pub use loom::{
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    thread::yield_now,
};
#[cfg(not(loom))]
pub use std::{
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    thread::yield_now,
};

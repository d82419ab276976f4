//! The primitives on which the engine waits: those of the standard library, or of `loom`, which tries every order in
//! which threads can take turns.

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

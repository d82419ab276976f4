//! The driver functions that attention needs.

use std::ffi::c_void;
use std::fmt;

use crate::backend::cuda::{DriverError, Stream};

/// The part of a driver that [`CudnnAttention`](super::CudnnAttention) needs. A driver that owns one passes an `Arc` of
/// state shared with it, not of itself, to avoid a reference cycle.
pub trait Host: Send + Sync + fmt::Debug {
    /// Makes the device's context current on this thread.
    fn make_current(&self) -> Result<(), DriverError>;

    /// Returns the `CUstream` of a stream.
    fn raw_stream(&self, stream: Stream) -> Result<*mut c_void, DriverError>;

    /// Returns the free device memory, in bytes.
    fn unused(&self) -> Result<usize, DriverError>;

    /// Allocates device memory for work on a stream, aligned to at least 256 bytes.
    fn alloc(&self, stream: Stream, bytes: usize) -> Result<u64, DriverError>;

    /// Frees device memory after all submitted work is done.
    ///
    /// # Safety
    /// `address` was returned by [`alloc`](Self::alloc) for this stream with the same `bytes`, and no later work uses
    /// it.
    unsafe fn free(&self, stream: Stream, address: u64, bytes: usize) -> Result<(), DriverError>;
}

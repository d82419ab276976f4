//! What attention asks of the driver that owns it.

use std::ffi::c_void;
use std::fmt;

use crate::backend::cuda::{DriverError, Stream};

/// The part of a driver that [`CudnnAttention`](super::CudnnAttention) needs. A driver that owns one passes an `Arc` of what it
/// shares with it, not of itself, or neither would ever be dropped.
pub trait Host: Send + Sync + fmt::Debug {
    /// Makes the context of the device current on this thread.
    fn make_current(&self) -> Result<(), DriverError>;

    /// The `CUstream` of a stream.
    fn raw_stream(&self, stream: Stream) -> Result<*mut c_void, DriverError>;

    /// Bytes of device memory that nobody uses.
    fn unused(&self) -> Result<usize, DriverError>;

    /// `bytes` bytes of device memory for work on a stream, aligned to at least 256.
    fn alloc(&self, stream: Stream, bytes: usize) -> Result<u64, DriverError>;

    /// Gives memory back when the device has done everything that was submitted to it.
    ///
    /// # Safety
    /// `address` came from [`alloc`](Self::alloc) for this stream with these `bytes`, and nothing that is submitted later uses it.
    unsafe fn free(&self, stream: Stream, address: u64, bytes: usize) -> Result<(), DriverError>;
}

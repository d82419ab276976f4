//! Options, limits, and requirements of attention.

use std::ffi::c_void;
use std::fmt;

use crate::{DriverError, Stream};

/// Options of [`CudnnAttention`](super::CudnnAttention).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudnnOptions {
    /// Requires bitwise equal gradients in every run. On Ampere and Hopper, where the library otherwise sums query
    /// gradients by atomics, it then stores the gradients of all scores and reads them again: two bytes of scratch
    /// memory per score, which grows with the square of the sequence length.
    pub deterministic: bool,
    /// Limit of scratch memory. A batch that needs more is computed in equal parts, one after the other; if a single
    /// sample needs more, the shape is not supported.
    pub scratch: ScratchLimit,
}

impl Default for CudnnOptions {
    fn default() -> CudnnOptions {
        CudnnOptions { deterministic: true, scratch: ScratchLimit::default() }
    }
}

/// Limit of the scratch memory of attention: a [fraction](Self::PART) of the free device memory, clamped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScratchLimit {
    /// Lower bound of the limit, in bytes.
    pub least: usize,
    /// Upper bound of the limit, in bytes.
    pub most: usize,
    /// Number of ranks that share the device, each with its own scratch memory.
    pub ranks: usize,
}

impl ScratchLimit {
    /// Divisor of the free device memory.
    pub const PART: usize = 4;

    /// Returns the limit given the free device memory, in bytes.
    pub fn bytes(&self, free_memory: usize) -> usize {
        (free_memory / (ScratchLimit::PART * self.ranks.max(1))).clamp(self.least, self.most)
    }
}

impl Default for ScratchLimit {
    /// Returns the limit for one rank per device: between 2 and 8 GiB.
    fn default() -> ScratchLimit {
        ScratchLimit { least: 2 << 30, most: 8 << 30, ranks: 1 }
    }
}

/// The part of a driver that [`CudnnAttention`](super::CudnnAttention) needs. A driver that owns one passes an `Arc` of
/// state shared with it, not of itself, to avoid a reference cycle.
pub trait CudnnHost: Send + Sync + fmt::Debug {
    /// Makes the device's context current on this thread.
    fn make_current(&self) -> Result<(), DriverError>;

    /// Returns the `CUstream` of a stream.
    fn raw_stream(&self, stream: Stream) -> Result<*mut c_void, DriverError>;

    /// Returns the free device memory, in bytes.
    fn free_memory(&self) -> Result<usize, DriverError>;

    /// Allocates device memory for work on a stream, aligned to at least 256 bytes.
    fn alloc(&self, stream: Stream, bytes: usize) -> Result<u64, DriverError>;

    /// Frees device memory after all submitted work is done.
    ///
    /// # Safety
    /// `address` was returned by [`alloc`](Self::alloc) for this stream with the same `bytes`, and no later work uses
    /// it.
    unsafe fn free(&self, stream: Stream, address: u64, bytes: usize) -> Result<(), DriverError>;
}

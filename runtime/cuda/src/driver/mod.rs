//! The interface between the CUDA backend and a GPU.
//!
//! The trait [`Driver`] separates the project's own code from the vendor's libraries. [`native`](super::native)
//! implements it over those libraries, and a simulated device implements it on the host with the same kernels, so that
//! everything above this trait is tested on machines without a GPU.

mod call;

use std::borrow::Cow;
use std::fmt;

use super::algorithm_choices::{AlgorithmChoices, AttentionChoice};
use super::fused_shape::FusedShape;
pub use call::{CallKind, DriverCalls, GpuCall, Reply};
use meshwright_backend::DeviceFailure;

/// A CUDA stream: a queue of work that is executed in order. Work on different streams is ordered by events only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stream(pub u64);

/// A CUDA event: a point in a stream for other streams and the host to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Event(pub u64);

/// A loaded module of machine code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KernelModule(pub u64);

/// An entry point of a [`KernelModule`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KernelFunction(pub u64);

/// An instantiated CUDA graph: captured work that is launched as one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Graph(pub u64);

/// Name and limits of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceProperties {
    /// Name as the driver reports it, such as "NVIDIA H100 80GB HBM3".
    pub name: String,
    /// Compute capability, such as `(9, 0)`.
    pub capability: (u32, u32),
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// Size of device memory, in bytes.
    pub memory: usize,
    /// Maximum shared memory of a block, in bytes.
    pub shared_memory: usize,
}

/// CUDA C++ source of one module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KernelSource {
    /// Name in messages and in the kernel cache.
    pub name: Cow<'static, str>,
    /// Text without the common header, which every driver prepends.
    pub text: Cow<'static, str>,
}

/// Dimensions of a kernel launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Grid {
    /// Number of blocks along x, y and z.
    pub blocks: [u32; 3],
    /// Threads per block, along x only.
    pub threads: u32,
    /// Dynamic shared memory per block, in bytes.
    pub shared: u32,
}

/// Error of a call to a device or to a library.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// A library is missing or lacks a function.
    #[error("{0}")]
    Library(String),
    /// The device does not exist.
    #[error("{0}")]
    NoDevice(String),
    /// Device memory is exhausted.
    #[error("the device has no {bytes} bytes left")]
    OutOfMemory {
        /// Requested size.
        bytes: usize,
    },
    /// A kernel does not compile.
    #[error("kernel source `{source_name}` does not compile for {architecture}:\n{log}")]
    Compile {
        /// Name of the [`KernelSource`].
        source_name: String,
        /// Target architecture.
        architecture: String,
        /// Compiler output.
        log: String,
    },
    /// The library supports no implementation of the requested operation; nothing was submitted.
    #[error("{call} refuses: {reason}")]
    Refused {
        /// Name of the library function.
        call: &'static str,
        /// Error description of the library.
        reason: String,
    },
    /// A call failed.
    #[error("{call} failed: {reason}")]
    Call {
        /// Name of the library function.
        call: &'static str,
        /// Error description of the library.
        reason: String,
    },
}

/// Returns the value of a call; unwinds the rank if the call failed.
pub(super) fn unwrap_call<T>(result: Result<T, DriverError>) -> T {
    result.unwrap_or_else(|error| DeviceFailure(error.to_string()).unwind())
}

/// One GPU, as one rank uses it. Handles of one driver are not valid on another.
///
/// [`DriverCalls`] has its calls as methods. Addresses are device addresses unless a parameter is a pointer. Calls that
/// take a stream return before the work is done, except [`Synchronize`](GpuCall::Synchronize).
///
/// # Safety
/// Callers of [`submit`](Self::submit) and of the unsafe methods guarantee that:
/// - addresses are inside live allocations of this device (of this or another rank's driver) that are large enough;
/// - no other work accesses the memory that is written until the stream has finished the call;
/// - host memory stays valid until then.
pub trait Driver: Send + Sync + fmt::Debug {
    /// Returns the name and limits of the device.
    fn properties(&self) -> &DeviceProperties;

    /// Makes a call. The reply has the type that the method of the call returns.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn submit(&self, call: GpuCall<'_>) -> Result<Reply, DriverError>;

    /// Returns the fused attention of a vendor library, if available on this device.
    fn attention(&self) -> Option<&dyn FusedAttention> {
        None
    }

    /// Returns the size of the workspaces that libraries hold for work on a stream, in bytes.
    fn workspace_bytes(&self, _: Stream) -> usize {
        0
    }

    /// Returns the algorithms chosen so far, for reports.
    fn algorithm_choices(&self) -> AlgorithmChoices {
        AlgorithmChoices::default()
    }

    /// Notes that a pass of attention runs on the project's own kernels, for reports. A driver that makes none does
    /// nothing, and does not compute the choice.
    fn note_attention(&self, _: &dyn Fn() -> AttentionChoice) {}
}

/// Shapes of fused attention over bf16 operands that a vendor library supports.
///
/// The calls are [`Attention`](GpuCall::Attention) and [`AttentionBackward`](GpuCall::AttentionBackward). Addresses of
/// operands are multiples of 16; other addresses are an error.
pub trait FusedAttention {
    /// Returns true if the forward pass of the shape is supported.
    fn supports(&self, shape: &FusedShape) -> bool;

    /// Returns true if the backward pass of the shape is supported for a rank that may allocate `free_bytes` more bytes
    /// of device memory. The workspace of a shape is fixed by the first call.
    fn supports_backward(&self, shape: &FusedShape, free_bytes: usize) -> bool;
}

//! The interface between the CUDA backend and a GPU.
//!
//! The trait [`Driver`] separates the project's own code from the vendor's libraries. [`native`](super::native)
//! implements it over those libraries, and a simulated device implements it on the host with the same kernels, so that
//! everything above this trait is tested on machines without a GPU.

use std::borrow::Cow;
use std::ffi::c_void;
use std::fmt;

use super::algorithm_choices::{AlgorithmChoices, AttentionChoice};
use super::fused_shape::{AttentionGradients, AttentionOperands, FusedShape};
use super::matmul::{MatMul, MatMulOperands};
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
/// Addresses are device addresses unless a parameter is a pointer. Calls that take a stream return before the work is
/// done, except [`synchronize`](Self::synchronize).
///
/// # Safety
/// Callers of the unsafe methods guarantee that:
/// - addresses are inside live allocations of this device (of this or another rank's driver) that are large enough;
/// - no other work accesses the memory that is written until the stream has finished the call;
/// - host memory stays valid until then.
pub trait Driver: Send + Sync + fmt::Debug {
    /// Returns the name and limits of the device.
    fn properties(&self) -> &DeviceProperties;

    /// Returns the free device memory, in bytes.
    fn free_memory(&self) -> Result<usize, DriverError>;
    /// Allocates `bytes` bytes of device memory, aligned to at least 256 bytes.
    fn alloc(&self, bytes: usize) -> Result<u64, DriverError>;
    /// Frees device memory. No stream may still use it.
    ///
    /// # Safety
    /// See [`Driver`]; `address` was returned by [`alloc`](Self::alloc) for the same `bytes`.
    unsafe fn free(&self, address: u64, bytes: usize) -> Result<(), DriverError>;
    /// Returns the size of the workspaces that libraries hold for work on these streams, in bytes.
    fn workspace_bytes(&self, streams: &[Stream]) -> usize;
    /// Allocates page-locked host memory, which is transferred without an intermediate copy.
    fn alloc_pinned(&self, bytes: usize) -> Result<*mut u8, DriverError>;
    /// Frees page-locked memory.
    ///
    /// # Safety
    /// As [`free`](Self::free).
    unsafe fn free_pinned(&self, memory: *mut u8, bytes: usize) -> Result<(), DriverError>;

    /// Creates a stream. Ready work of `high_priority` streams is scheduled first.
    fn new_stream(&self, high_priority: bool) -> Result<Stream, DriverError>;
    /// Destroys a stream after its work is done.
    fn free_stream(&self, stream: Stream) -> Result<(), DriverError>;
    /// Waits until all work submitted to `stream` is done.
    fn synchronize(&self, stream: Stream) -> Result<(), DriverError>;

    /// Creates an event. The elapsed time between `timed` events can be measured.
    fn new_event(&self, timed: bool) -> Result<Event, DriverError>;
    /// Destroys an event.
    fn free_event(&self, event: Event) -> Result<(), DriverError>;
    /// Records `event` after the work submitted to `stream` so far.
    fn record(&self, event: Event, stream: Stream) -> Result<(), DriverError>;
    /// Records `event` after the work captured on `stream` so far, in each launch of the graph. Only during a capture,
    /// and no stream can wait for it there.
    fn record_in_graph(&self, event: Event, stream: Stream) -> Result<(), DriverError>;
    /// Makes later work on `stream` wait for the last record of `event`.
    fn wait(&self, stream: Stream, event: Event) -> Result<(), DriverError>;
    /// Returns true if the last record of `event` is complete.
    fn is_done(&self, event: Event) -> Result<bool, DriverError>;
    /// Returns the milliseconds between two completed timed events.
    fn elapsed_ms(&self, from: Event, to: Event) -> Result<f32, DriverError>;

    /// Copies host memory to the device.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn upload(
        &self,
        stream: Stream,
        dst: u64,
        src: *const c_void,
        bytes: usize,
    ) -> Result<(), DriverError>;
    /// Copies device memory to the host.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn download(
        &self,
        stream: Stream,
        dst: *mut c_void,
        src: u64,
        bytes: usize,
    ) -> Result<(), DriverError>;
    /// Copies device memory to device memory that does not overlap it.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn copy(
        &self,
        stream: Stream,
        dst: u64,
        src: u64,
        bytes: usize,
    ) -> Result<(), DriverError>;
    /// Fills device memory with zeros.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn zero(&self, stream: Stream, dst: u64, bytes: usize) -> Result<(), DriverError>;

    /// Compiles a source, or finds its machine code in the cache, and loads it. The same source returns the same
    /// module.
    fn load(&self, source: &KernelSource) -> Result<KernelModule, DriverError>;
    /// Returns an entry point by name.
    fn function(&self, module: KernelModule, name: &str) -> Result<KernelFunction, DriverError>;
    /// Launches a kernel; `args` are its parameters as bytes, in order.
    ///
    /// # Safety
    /// See [`Driver`]; `args` have the types of the kernel's parameters.
    unsafe fn launch(
        &self,
        stream: Stream,
        function: KernelFunction,
        grid: Grid,
        args: &[&[u8]],
    ) -> Result<(), DriverError>;

    /// Returns true if matmuls of a shape with an epilogue are supported for [aligned](MatMulOperands::ALIGNMENT)
    /// operands.
    fn has_matmul(&self, shape: &MatMul) -> Result<bool, DriverError>;
    /// Computes `c (+)= op(a) * op(b)` and the [epilogue](super::MatMulEpilogue) of the shape.
    ///
    /// A matmul with an epilogue may be [refused](DriverError::Refused) even if [`has_matmul`](Self::has_matmul)
    /// returned true, which returns false from then on.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn matmul(
        &self,
        stream: Stream,
        shape: &MatMul,
        operands: &MatMulOperands,
    ) -> Result<(), DriverError>;

    /// Returns the algorithms chosen so far, for reports.
    fn algorithm_choices(&self) -> AlgorithmChoices {
        AlgorithmChoices::default()
    }

    /// Notes that a pass of attention runs on the project's own kernels, for reports. A driver that makes none does
    /// nothing, and does not compute the choice.
    fn note_attention(&self, _: &dyn Fn() -> AttentionChoice) {}

    /// Returns the fused attention of a vendor library for bf16 operands, if available on this device.
    fn attention(&self) -> Option<&dyn FusedAttention>;

    /// Begins stream capture: work submitted to `stream`, and to streams that wait for it, is captured instead of
    /// executed.
    fn begin_capture(&self, stream: Stream) -> Result<(), DriverError>;
    /// Ends stream capture and instantiates the CUDA graph.
    fn end_capture(&self, stream: Stream) -> Result<Graph, DriverError>;
    /// Launches a CUDA graph.
    ///
    /// # Safety
    /// The guarantees given for the captured calls hold again.
    unsafe fn launch_graph(&self, stream: Stream, graph: Graph) -> Result<(), DriverError>;
    /// Destroys a CUDA graph.
    fn free_graph(&self, graph: Graph) -> Result<(), DriverError>;
}

/// Fused attention of a vendor library over bf16 operands.
///
/// Addresses are multiples of 16; other addresses are an error.
///
/// # Safety
/// As for [`Driver`].
pub trait FusedAttention {
    /// Returns true if [`forward`](Self::forward) supports the shape.
    fn supports(&self, shape: &FusedShape) -> bool;

    /// Returns true if [`backward`](Self::backward) supports the shape for a rank that may allocate `free_bytes` more
    /// bytes of device memory. The workspace of a shape is fixed by the first call.
    fn supports_backward(&self, shape: &FusedShape, free_bytes: usize) -> bool;

    /// Computes `out` and the log-sum-exp `lse`.
    ///
    /// # Safety
    /// See [`FusedAttention`].
    unsafe fn forward(
        &self,
        stream: Stream,
        shape: &FusedShape,
        operands: &AttentionOperands,
    ) -> Result<(), DriverError>;

    /// Computes `dq`, `dk` and `dv`.
    ///
    /// # Safety
    /// See [`FusedAttention`].
    unsafe fn backward(
        &self,
        stream: Stream,
        shape: &FusedShape,
        operands: &AttentionOperands,
        gradients: &AttentionGradients,
    ) -> Result<(), DriverError>;
}

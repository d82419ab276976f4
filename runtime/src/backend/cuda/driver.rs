//! What the backend asks of a GPU.
//!
//! One trait stands between our own code and the vendor's libraries. It is implemented over them ([`native`](super::native)),
//! and by a simulated device that runs the same kernels on the host, so that everything above it is tested on machines
//! without a GPU.

use std::borrow::Cow;
use std::ffi::c_void;
use std::fmt;

use super::choices::Choices;
use crate::backend::{AttentionShape, DType, Gemm};

/// A queue of work, executed in order; work on different streams has no order but that of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stream(pub u64);

/// A point in a stream, for other streams and the host to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Event(pub u64);

/// Loaded machine code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Module(pub u64);

/// An entry point of a [`Module`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Function(pub u64);

/// Recorded work, to be submitted at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Graph(pub u64);

/// What a device is and can do.
#[derive(Debug, Clone, PartialEq)]
pub struct Properties {
    /// The name that its maker gave it, such as "NVIDIA H100 80GB HBM3".
    pub name: String,
    /// Compute capability, such as `(9, 0)`.
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of device memory.
    pub memory: usize,
    /// Most bytes of shared memory that one block can ask for.
    pub shared_memory: usize,
}

/// CUDA C++ source of a module, complete in itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Source {
    /// What messages and the cache call it.
    pub name: Cow<'static, str>,
    /// The text without the common header, which every driver puts before it.
    pub text: Cow<'static, str>,
}

/// Sizes of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Grid {
    /// Blocks along x, y and z.
    pub blocks: [u32; 3],
    /// Threads of a block, along x alone.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared: u32,
}

/// A matrix product of row-major operands and the dtypes of its operands; sums are f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MatMul {
    /// Sizes and forms.
    pub gemm: Gemm,
    /// Dtype of both factors.
    pub factors: DType,
    /// Dtype of the result: that of the factors, or f32.
    pub result: DType,
    /// What is done beside.
    pub ending: Ending,
}

/// Its sizes, which factors are transposed (as BLAS writes it), dtypes, and what is done beside.
impl fmt::Display for MatMul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MatMul { gemm, factors, result, ending } = self;
        let Gemm { m, n, k, trans_a, trans_b, accumulate } = gemm;
        let [a, b] = [trans_a, trans_b].map(|transposed| if *transposed { 'T' } else { 'N' });
        let added = if *accumulate { " added" } else { "" };
        let ending = match ending {
            Ending::Plain => "",
            Ending::Bias => " bias",
            Ending::BiasGelu { keeps: false } => " bias GELU",
            Ending::BiasGelu { keeps: true } => " bias GELU kept",
            Ending::Sums => " sums",
        };
        write!(f, "{m} x {n} x {k} {a}{b} {factors} -> {result}{added}{ending}")
    }
}

/// What a product does beside writing its result, in one kernel with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// Nothing.
    Plain,
    /// Adds `vector`, one element for each column of the result and of its dtype, to every row.
    Bias,
    /// [`Bias`](Self::Bias), and GELU in its `tanh` form of that. With `keeps`, what GELU is taken of goes to `inside`, which
    /// is like the result.
    BiasGelu {
        /// Whether `inside` is written.
        keeps: bool,
    },
    /// Writes the sum of each column of `op(b)` to `vector`, in f32: the gradient of a bias, beside that of its weight.
    Sums,
}

/// Where a product is computed. What its [`Ending`] does not use is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatMulOperands {
    /// The left factor.
    pub a: u64,
    /// The right factor.
    pub b: u64,
    /// The result.
    pub c: u64,
    /// What is added to each row, or the sums.
    pub vector: u64,
    /// What GELU is taken of.
    pub inside: u64,
}

impl MatMulOperands {
    /// Those of a plain product.
    pub fn plain(a: u64, b: u64, c: u64) -> MatMulOperands {
        MatMulOperands { a, b, c, vector: 0, inside: 0 }
    }

    /// Operands of products that do more lie at multiples of this many bytes.
    pub const ALIGNMENT: u64 = 16;
}

/// Why a device could not do something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// A library is not there, or lacks something.
    #[error("{0}")]
    Library(String),
    /// There is no such device.
    #[error("{0}")]
    NoDevice(String),
    /// The device has no memory left.
    #[error("the device has no {bytes} bytes left")]
    OutOfMemory {
        /// What was asked for.
        bytes: usize,
    },
    /// A kernel does not compile.
    #[error("kernel source `{source_name}` does not compile for {architecture}:\n{log}")]
    Compile {
        /// Name of the [`Source`].
        source_name: String,
        /// What it was compiled for.
        architecture: String,
        /// What the compiler printed.
        log: String,
    },
    /// A library has nothing for what a call asks, and has done nothing.
    #[error("{call} refuses: {reason}")]
    Refused {
        /// The function of the library.
        call: &'static str,
        /// The library's words.
        reason: String,
    },
    /// A call failed.
    #[error("{call} failed: {reason}")]
    Call {
        /// The function of the library.
        call: &'static str,
        /// The library's words.
        reason: String,
    },
}

/// One GPU, as one rank uses it. Handles of one driver are not valid on another.
///
/// Addresses are device addresses unless a parameter is a pointer. Calls that take a stream return before the work is
/// done, but for [`synchronize`](Self::synchronize).
///
/// # Safety
/// Callers of the unsafe methods promise that addresses lie in live allocations of this device (or of another rank's
/// driver of the same device) with room for what is asked, that no other work uses what is written until the stream has
/// done it, and that host memory stays in place until then.
pub trait Driver: Send + Sync + fmt::Debug {
    /// What the device is.
    fn properties(&self) -> &Properties;

    /// Bytes of device memory that nobody uses.
    fn free_memory(&self) -> Result<usize, DriverError>;
    /// `bytes` bytes, aligned to at least 256.
    fn alloc(&self, bytes: usize) -> Result<u64, DriverError>;
    /// Gives memory back. No stream may still use it.
    ///
    /// # Safety
    /// See [`Driver`]; `address` came from [`alloc`](Self::alloc) with these `bytes`.
    unsafe fn free(&self, address: u64, bytes: usize) -> Result<(), DriverError>;
    /// Bytes of device memory that libraries use beside their operands, for work on these streams.
    fn scratch_bytes(&self, streams: &[Stream]) -> usize;
    /// Page-locked host memory, which transfers without a copy aside.
    fn alloc_pinned(&self, bytes: usize) -> Result<*mut u8, DriverError>;
    /// Gives page-locked memory back.
    ///
    /// # Safety
    /// As [`free`](Self::free).
    unsafe fn free_pinned(&self, memory: *mut u8, bytes: usize) -> Result<(), DriverError>;

    /// A new stream. Of what is ready, streams with `urgent` go first.
    fn new_stream(&self, urgent: bool) -> Result<Stream, DriverError>;
    /// Gives a stream back once its work is done.
    fn free_stream(&self, stream: Stream) -> Result<(), DriverError>;
    /// Returns when everything submitted to `stream` is done.
    fn synchronize(&self, stream: Stream) -> Result<(), DriverError>;

    /// A new event, which has not happened. `timed` ones can be measured.
    fn new_event(&self, timed: bool) -> Result<Event, DriverError>;
    /// Gives an event back.
    fn free_event(&self, event: Event) -> Result<(), DriverError>;
    /// `event` happens when `stream` has done what was submitted so far.
    fn record(&self, event: Event, stream: Stream) -> Result<(), DriverError>;
    /// `stream` does nothing more before the last record of `event` has happened.
    fn wait(&self, stream: Stream, event: Event) -> Result<(), DriverError>;
    /// Whether the last record of `event` has happened.
    fn is_done(&self, event: Event) -> Result<bool, DriverError>;
    /// Milliseconds between two timed events that have happened.
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
    /// Copies device memory; the two do not overlap.
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
    /// Sets bytes to zero.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn zero(&self, stream: Stream, dst: u64, bytes: usize) -> Result<(), DriverError>;

    /// Compiles (or finds in a cache) and loads machine code. The same source gives the same module.
    fn load(&self, source: &Source) -> Result<Module, DriverError>;
    /// An entry point by name.
    fn function(&self, module: Module, name: &str) -> Result<Function, DriverError>;
    /// Runs a kernel; `args` are its parameters as bytes, in order.
    ///
    /// # Safety
    /// See [`Driver`]; and `args` are what the kernel takes.
    unsafe fn launch(
        &self,
        stream: Stream,
        function: Function,
        grid: Grid,
        args: &[&[u8]],
    ) -> Result<(), DriverError>;

    /// Whether there are products of a shape that is not plain, of operands that are
    /// [aligned](MatMulOperands::ALIGNMENT).
    fn has_matmul(&self, shape: &MatMul) -> Result<bool, DriverError>;
    /// `c (+)= op(a) * op(b)`, and what the shape's [`Ending`] says.
    ///
    /// A product whose ending is not plain may be [refused](DriverError::Refused) all the same; then
    /// [`has_matmul`](Self::has_matmul) says so from now on.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn matmul(
        &self,
        stream: Stream,
        shape: &MatMul,
        operands: &MatMulOperands,
    ) -> Result<(), DriverError>;

    /// What was chosen among several ways so far.
    fn choices(&self) -> Choices {
        Choices::default()
    }

    /// The vendor's attention, where there is one for bf16 operands on this device.
    fn attention(&self) -> Option<&dyn FusedAttention>;

    /// What is submitted to `stream` from now on, and to streams that wait for it, is recorded instead of done.
    fn begin_capture(&self, stream: Stream) -> Result<(), DriverError>;
    /// Ends a recording.
    fn end_capture(&self, stream: Stream) -> Result<Graph, DriverError>;
    /// Submits recorded work.
    ///
    /// # Safety
    /// What was promised for the recorded calls holds again.
    unsafe fn launch_graph(&self, stream: Stream, graph: Graph) -> Result<(), DriverError>;
    /// Gives a recording back.
    fn free_graph(&self, graph: Graph) -> Result<(), DriverError>;
}

/// Attention by the vendor's library, over bf16 operands laid out as in [`AttentionShape`].
///
/// Addresses are multiples of 16; operands that lie elsewhere are an error.
///
/// # Safety
/// As for [`Driver`].
pub trait FusedAttention {
    /// Whether there is a plan for [`forward`](Self::forward) of these sizes.
    fn supports(&self, shape: &AttentionShape) -> bool;

    /// Whether there is a plan for [`backward`](Self::backward) of these sizes, for a rank that may take `room` more bytes
    /// of device memory. How much scratch it uses is decided when a shape is first asked for.
    fn supports_backward(&self, shape: &AttentionShape, room: usize) -> bool;

    /// Writes `out` and the log-sum-exp `lse` (f32, `[batch, heads, seq]`).
    ///
    /// # Safety
    /// See [`FusedAttention`].
    unsafe fn forward(
        &self,
        stream: Stream,
        shape: &AttentionShape,
        operands: &AttentionOperands,
    ) -> Result<(), DriverError>;

    /// Writes `dq`, `dk` and `dv`.
    ///
    /// # Safety
    /// See [`FusedAttention`].
    unsafe fn backward(
        &self,
        stream: Stream,
        shape: &AttentionShape,
        operands: &AttentionOperands,
        gradients: &AttentionGradients,
    ) -> Result<(), DriverError>;
}

/// Addresses of the operands and results of a forward pass of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionOperands {
    /// Queries.
    pub q: u64,
    /// Keys.
    pub k: u64,
    /// Values.
    pub v: u64,
    /// Output.
    pub out: u64,
    /// Log-sum-exp of each row, f32.
    pub lse: u64,
}

/// Addresses of the gradients of a backward pass of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionGradients {
    /// Gradient of the output.
    pub dout: u64,
    /// Gradient of the queries, written.
    pub dq: u64,
    /// Gradient of the keys, written.
    pub dk: u64,
    /// Gradient of the values, written.
    pub dv: u64,
}

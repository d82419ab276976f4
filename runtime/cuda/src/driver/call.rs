//! The calls to a GPU as one table, which defines the enum, its kinds and the typed methods.

use std::ffi::c_void;

use super::{
    Driver, DriverError, Event, Graph, Grid, KernelFunction, KernelModule, KernelSource, Stream,
};
use crate::fused_shape::{AttentionGradients, AttentionOperands, FusedShape};
use crate::matmul::{MatMul, MatMulOperands};

/// Defines [`GpuCall`], [`CallKind`] and [`DriverCalls`]. `unsafe` calls name memory.
macro_rules! calls {
    ($a:lifetime; $(
        $(#[$doc:meta])*
        $safety:ident $kind:ident = $method:ident $(<$life:lifetime>)? ($($field:ident: $type:ty),*) -> $reply:ty;
    )*) => {
        /// A call to a GPU. [`DriverCalls`] has a method for each, with the same parameters.
        #[derive(Debug, Clone, Copy)]
        pub enum GpuCall<$a> {
            $(
                $(#[$doc])*
                $kind {
                    $(
                        /// Parameter of the method.
                        $field: $type,
                    )*
                },
            )*
        }

        /// The kind of a [`GpuCall`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum CallKind {
            $(
                #[doc = concat!("[`GpuCall::", stringify!($kind), "`].")]
                $kind,
            )*
        }

        impl CallKind {
            /// Number of kinds.
            pub const COUNT: usize = [$(CallKind::$kind),*].len();
        }

        impl GpuCall<'_> {
            /// Returns the kind of the call.
            #[inline]
            pub fn kind(&self) -> CallKind {
                match self {
                    $(GpuCall::$kind { .. } => CallKind::$kind,)*
                }
            }
        }

        /// The calls to a [`Driver`] as methods, whose results have the type of the reply.
        pub trait DriverCalls: Driver {
            $(calls! {
                @$safety
                $(#[$doc])*
                $kind = $method $(<$life>)? ($($field: $type),*) -> $reply
            })*
        }
    };
    (
        @safe
        $(#[$doc:meta])*
        $kind:ident = $method:ident $(<$life:lifetime>)? ($($field:ident: $type:ty),*) -> $reply:ty
    ) => {
        $(#[$doc])*
        #[inline]
        fn $method $(<$life>)? (&self, $($field: $type),*) -> Result<$reply, DriverError> {
            // SAFETY: the call reads and writes no memory that it is given.
            unsafe { self.submit(GpuCall::$kind { $($field),* }) }.map(<$reply>::from)
        }
    };
    (
        @unsafe
        $(#[$doc:meta])*
        $kind:ident = $method:ident $(<$life:lifetime>)? ($($field:ident: $type:ty),*) -> $reply:ty
    ) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// See [`Driver`].
        #[inline]
        unsafe fn $method $(<$life>)? (&self, $($field: $type),*) -> Result<$reply, DriverError> {
            // SAFETY: as the caller promises.
            unsafe { self.submit(GpuCall::$kind { $($field),* }) }.map(<$reply>::from)
        }
    };
}

calls! { 'a;
    /// Returns the free device memory, in bytes.
    safe FreeMemory = free_memory() -> usize;
    /// Allocates `bytes` bytes of device memory, aligned to at least 256 bytes.
    safe Alloc = alloc(bytes: usize) -> u64;
    /// Frees device memory, which was allocated with the same `bytes`. No stream may still use it.
    unsafe Free = free(address: u64, bytes: usize) -> ();
    /// Allocates page-locked host memory, which is transferred without an intermediate copy.
    safe AllocPinned = alloc_pinned(bytes: usize) -> *mut u8;
    /// Frees page-locked memory, as [`Free`](GpuCall::Free).
    unsafe FreePinned = free_pinned(memory: *mut u8, bytes: usize) -> ();

    /// Creates a stream. Ready work of `high_priority` streams is scheduled first.
    safe NewStream = new_stream(high_priority: bool) -> Stream;
    /// Destroys a stream after its work is done.
    safe FreeStream = free_stream(stream: Stream) -> ();
    /// Waits until all work submitted to `stream` is done.
    safe Synchronize = synchronize(stream: Stream) -> ();

    /// Creates an event. The elapsed time between `timed` events can be measured.
    safe NewEvent = new_event(timed: bool) -> Event;
    /// Destroys an event.
    safe FreeEvent = free_event(event: Event) -> ();
    /// Records `event` after the work submitted to `stream` so far.
    safe Record = record(event: Event, stream: Stream) -> ();
    /// Records `event` after the work captured on `stream` so far, in each launch of the graph. Only during a capture,
    /// and no stream can wait for it there.
    safe RecordInGraph = record_in_graph(event: Event, stream: Stream) -> ();
    /// Makes later work on `stream` wait for the last record of `event`.
    safe Wait = wait(stream: Stream, event: Event) -> ();
    /// Returns true if the last record of `event` is complete.
    safe IsDone = is_done(event: Event) -> bool;
    /// Returns the milliseconds between two completed timed events.
    safe ElapsedMs = elapsed_ms(from: Event, to: Event) -> f32;

    /// Copies host memory to the device.
    unsafe Upload = upload(stream: Stream, dst: u64, src: *const c_void, bytes: usize) -> ();
    /// Copies device memory to the host.
    unsafe Download = download(stream: Stream, dst: *mut c_void, src: u64, bytes: usize) -> ();
    /// Copies device memory to device memory that does not overlap it.
    unsafe Copy = copy(stream: Stream, dst: u64, src: u64, bytes: usize) -> ();
    /// Fills device memory with zeros.
    unsafe Zero = zero(stream: Stream, dst: u64, bytes: usize) -> ();

    /// Compiles a source, or finds its machine code in the cache, and loads it. The same source returns the same
    /// module.
    safe Load = load<'a>(source: &'a KernelSource) -> KernelModule;
    /// Returns an entry point by name.
    safe Function = function<'a>(module: KernelModule, name: &'a str) -> KernelFunction;
    /// Launches a kernel; `args` are its parameters as bytes, in order and with the kernel's types.
    unsafe Launch = launch<'a>(
        stream: Stream, function: KernelFunction, grid: Grid, args: &'a [&'a [u8]]
    ) -> ();

    /// Returns true if matmuls of a shape with an epilogue are supported for [aligned](MatMulOperands::ALIGNMENT)
    /// operands.
    safe HasMatMul = has_matmul<'a>(shape: &'a MatMul) -> bool;
    /// Computes `c (+)= op(a) * op(b)` and the [epilogue](crate::MatMulEpilogue) of the shape.
    ///
    /// A matmul with an epilogue may be [refused](DriverError::Refused) even if [`HasMatMul`](GpuCall::HasMatMul)
    /// returned true, which returns false from then on.
    unsafe MatMul = matmul<'a>(stream: Stream, shape: &'a MatMul, operands: &'a MatMulOperands) -> ();
    /// Computes `out` and the log-sum-exp `lse` of [fused attention](super::FusedAttention).
    unsafe Attention = attention_forward<'a>(
        stream: Stream, shape: &'a FusedShape, operands: &'a AttentionOperands
    ) -> ();
    /// Computes `dq`, `dk` and `dv` of [fused attention](super::FusedAttention).
    unsafe AttentionBackward = attention_backward<'a>(
        stream: Stream, shape: &'a FusedShape, operands: &'a AttentionOperands, gradients: &'a AttentionGradients
    ) -> ();

    /// Begins stream capture: work submitted to `stream`, and to streams that wait for it, is captured instead of
    /// executed.
    safe BeginCapture = begin_capture(stream: Stream) -> ();
    /// Ends stream capture and instantiates the CUDA graph.
    safe EndCapture = end_capture(stream: Stream) -> Graph;
    /// Launches a CUDA graph. The guarantees given for the captured calls hold again.
    unsafe LaunchGraph = launch_graph(stream: Stream, graph: Graph) -> ();
    /// Destroys a CUDA graph.
    safe FreeGraph = free_graph(graph: Graph) -> ();
}

impl<D: Driver + ?Sized> DriverCalls for D {}

impl GpuCall<'_> {
    /// Returns the stream of the call, if it has one.
    #[inline]
    pub fn stream(&self) -> Option<Stream> {
        match *self {
            GpuCall::FreeStream { stream }
            | GpuCall::Synchronize { stream }
            | GpuCall::Record { stream, .. }
            | GpuCall::RecordInGraph { stream, .. }
            | GpuCall::Wait { stream, .. }
            | GpuCall::Upload { stream, .. }
            | GpuCall::Download { stream, .. }
            | GpuCall::Copy { stream, .. }
            | GpuCall::Zero { stream, .. }
            | GpuCall::Launch { stream, .. }
            | GpuCall::MatMul { stream, .. }
            | GpuCall::Attention { stream, .. }
            | GpuCall::AttentionBackward { stream, .. }
            | GpuCall::BeginCapture { stream }
            | GpuCall::EndCapture { stream }
            | GpuCall::LaunchGraph { stream, .. } => Some(stream),
            _ => None,
        }
    }

    /// Returns the number of bytes that the call allocates, frees or copies; 0 for other calls.
    pub fn bytes(&self) -> usize {
        match *self {
            GpuCall::Alloc { bytes }
            | GpuCall::Free { bytes, .. }
            | GpuCall::AllocPinned { bytes }
            | GpuCall::FreePinned { bytes, .. }
            | GpuCall::Upload { bytes, .. }
            | GpuCall::Download { bytes, .. }
            | GpuCall::Copy { bytes, .. }
            | GpuCall::Zero { bytes, .. } => bytes,
            _ => 0,
        }
    }
}

/// Defines [`Reply`], and its conversions from and to the types of values.
macro_rules! replies {
    ($($variant:ident($type:ty), $doc:literal;)*) => {
        /// The value that a [`GpuCall`] returns: that of its method in [`DriverCalls`].
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub enum Reply {
            $(
                #[doc = $doc]
                $variant($type),
            )*
        }

        $(
            impl From<$type> for Reply {
                #[inline]
                fn from(value: $type) -> Reply {
                    Reply::$variant(value)
                }
            }

            impl From<Reply> for $type {
                #[inline]
                fn from(reply: Reply) -> $type {
                    match reply {
                        Reply::$variant(value) => value,
                        other => unreachable!("{other:?} is not the reply to this call"),
                    }
                }
            }
        )*
    };
}

replies! {
    Done(()), "No value.";
    Bytes(usize), "A number of bytes.";
    Address(u64), "An address of device memory.";
    Memory(*mut u8), "Page-locked host memory.";
    Stream(Stream), "A new stream.";
    Event(Event), "A new event.";
    Answer(bool), "The answer to a question.";
    Milliseconds(f32), "A time in milliseconds.";
    Module(KernelModule), "A loaded module.";
    Function(KernelFunction), "An entry point.";
    Graph(Graph), "A new CUDA graph.";
}

//! A driver that does nothing, for measuring launch overhead and recording the calls that the backend makes.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use super::driver::{
    DeviceProperties, Driver, DriverError, Event, FusedAttention, Graph, Grid, KernelFunction,
    KernelModule, KernelSource, Stream,
};
use super::fused_shape::{AttentionGradients, AttentionOperands, FusedShape};
use super::gpu::lock_unpoisoned;
use super::matmul::{MatMul, MatMulOperands};

/// A call to a [`NullDriver`], as its observer receives it. Calls that free something are not reported.
#[derive(Debug, Clone, Copy)]
pub enum NullCall<'a> {
    /// An allocation of device memory.
    Alloc,
    /// The creation of an event.
    NewEvent,
    /// The record of an event.
    RecordEvent,
    /// A wait of a stream for an event.
    WaitEvent,
    /// A synchronization of the host with a stream.
    Synchronize,
    /// A copy in any direction, or a fill with zeros.
    Copy,
    /// The lookup of a kernel by name. Functions are numbered from 0.
    Function {
        /// The handle.
        function: KernelFunction,
        /// Name of the kernel.
        kernel: &'a str,
    },
    /// A kernel launch.
    Launch(KernelFunction),
    /// A matmul.
    MatMul,
    /// A forward pass of fused attention.
    Attention,
    /// A backward pass of fused attention.
    AttentionBackward,
}

/// An observer of the calls to a [`NullDriver`].
type Observer = Arc<dyn Fn(NullCall<'_>) + Send + Sync>;

/// A driver whose calls return immediately and do nothing.
///
/// Addresses and handles are numbers without memory behind them, except page-locked host memory, which is real.
pub struct NullDriver {
    properties: DeviceProperties,
    observer: Observer,
    attention: Option<NullAttention>,
    sources: Mutex<Vec<KernelSource>>,
    functions: AtomicU64,
    next: AtomicU64,
}

/// Fused attention that does nothing.
pub struct NullAttention {
    observer: Observer,
    supports_backward: bool,
}

impl NullDriver {
    /// Creates a driver that reports the limits of an H200 and has no fused attention. `observer` receives its calls.
    pub fn new(observer: impl Fn(NullCall<'_>) + Send + Sync + 'static) -> NullDriver {
        let properties = DeviceProperties {
            name: "null".to_string(),
            capability: (9, 0),
            multiprocessors: 132,
            memory: 141 << 30,
            shared_memory: 227 << 10,
        };
        NullDriver {
            properties,
            observer: Arc::new(observer),
            attention: None,
            sources: Mutex::default(),
            functions: AtomicU64::new(0),
            next: AtomicU64::new(1 << 20),
        }
    }

    /// Adds fused attention that supports every shape; the observer receives its calls.
    pub fn with_attention(self) -> NullDriver {
        let observer = Arc::clone(&self.observer);
        NullDriver { attention: Some(NullAttention { observer, supports_backward: true }), ..self }
    }

    /// Returns the sources loaded so far, each once.
    pub fn loaded_sources(&self) -> Vec<KernelSource> {
        lock_unpoisoned(&self.sources).clone()
    }

    fn observe(&self, call: NullCall<'_>) -> Result<(), DriverError> {
        (self.observer)(call);
        Ok(())
    }

    fn new_handle(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }
}

impl NullAttention {
    /// Creates fused attention that supports every shape forward, and backward if `supports_backward`. `observer`
    /// receives its calls.
    pub fn new(
        supports_backward: bool,
        observer: impl Fn(NullCall<'_>) + Send + Sync + 'static,
    ) -> NullAttention {
        NullAttention { observer: Arc::new(observer), supports_backward }
    }
}

impl fmt::Debug for NullDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NullDriver")
    }
}

/// Alignment of page-locked memory.
const PAGE: usize = 4096;

type Done<T = ()> = Result<T, DriverError>;

impl Driver for NullDriver {
    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn free_memory(&self) -> Done<usize> {
        Ok(self.properties.memory)
    }

    fn alloc(&self, bytes: usize) -> Done<u64> {
        self.observe(NullCall::Alloc)?;
        Ok(self.next.fetch_add(bytes as u64 + 512, Relaxed).next_multiple_of(256))
    }

    unsafe fn free(&self, _: u64, _: usize) -> Done {
        Ok(())
    }

    fn workspace_bytes(&self, _: &[Stream]) -> usize {
        0
    }

    fn alloc_pinned(&self, bytes: usize) -> Done<*mut u8> {
        match Layout::from_size_align(bytes, PAGE) {
            // SAFETY: the layout is not empty.
            Ok(layout) if bytes > 0 => Ok(unsafe { alloc_zeroed(layout) }),
            _ => Err(DriverError::OutOfMemory { bytes }),
        }
    }

    unsafe fn free_pinned(&self, memory: *mut u8, bytes: usize) -> Done {
        if let Ok(layout) = Layout::from_size_align(bytes, PAGE) {
            // SAFETY: `alloc_pinned` allocated this memory with the same layout.
            unsafe { dealloc(memory, layout) };
        }
        Ok(())
    }

    fn new_stream(&self, _: bool) -> Done<Stream> {
        Ok(Stream(self.new_handle()))
    }

    fn free_stream(&self, _: Stream) -> Done {
        Ok(())
    }

    fn synchronize(&self, _: Stream) -> Done {
        self.observe(NullCall::Synchronize)
    }

    fn new_event(&self, _: bool) -> Done<Event> {
        self.observe(NullCall::NewEvent)?;
        Ok(Event(self.new_handle()))
    }

    fn free_event(&self, _: Event) -> Done {
        Ok(())
    }

    fn record(&self, _: Event, _: Stream) -> Done {
        self.observe(NullCall::RecordEvent)
    }

    fn record_in_graph(&self, event: Event, stream: Stream) -> Done {
        self.record(event, stream)
    }

    fn wait(&self, _: Stream, _: Event) -> Done {
        self.observe(NullCall::WaitEvent)
    }

    fn is_done(&self, _: Event) -> Done<bool> {
        Ok(true)
    }

    fn elapsed_ms(&self, _: Event, _: Event) -> Done<f32> {
        Ok(0.0)
    }

    unsafe fn upload(&self, _: Stream, _: u64, _: *const c_void, _: usize) -> Done {
        self.observe(NullCall::Copy)
    }

    unsafe fn download(&self, _: Stream, _: *mut c_void, _: u64, _: usize) -> Done {
        self.observe(NullCall::Copy)
    }

    unsafe fn copy(&self, _: Stream, _: u64, _: u64, _: usize) -> Done {
        self.observe(NullCall::Copy)
    }

    unsafe fn zero(&self, _: Stream, _: u64, _: usize) -> Done {
        self.observe(NullCall::Copy)
    }

    fn load(&self, source: &KernelSource) -> Done<KernelModule> {
        let mut sources = lock_unpoisoned(&self.sources);
        let known = sources.iter().position(|known| known == source);
        let index = known.unwrap_or_else(|| {
            sources.push(source.clone());
            sources.len() - 1
        });
        Ok(KernelModule(index as u64))
    }

    fn function(&self, _: KernelModule, kernel: &str) -> Done<KernelFunction> {
        let function = KernelFunction(self.functions.fetch_add(1, Relaxed));
        self.observe(NullCall::Function { function, kernel })?;
        Ok(function)
    }

    unsafe fn launch(&self, _: Stream, function: KernelFunction, _: Grid, _: &[&[u8]]) -> Done {
        self.observe(NullCall::Launch(function))
    }

    fn has_matmul(&self, _: &MatMul) -> Done<bool> {
        Ok(true)
    }

    unsafe fn matmul(&self, _: Stream, _: &MatMul, _: &MatMulOperands) -> Done {
        self.observe(NullCall::MatMul)
    }

    fn attention(&self) -> Option<&dyn FusedAttention> {
        self.attention.as_ref().map(|attention| attention as &dyn FusedAttention)
    }

    fn begin_capture(&self, _: Stream) -> Done {
        Ok(())
    }

    fn end_capture(&self, _: Stream) -> Done<Graph> {
        Ok(Graph(self.new_handle()))
    }

    unsafe fn launch_graph(&self, _: Stream, _: Graph) -> Done {
        Ok(())
    }

    fn free_graph(&self, _: Graph) -> Done {
        Ok(())
    }
}

impl FusedAttention for NullAttention {
    fn supports(&self, _: &FusedShape) -> bool {
        true
    }

    fn supports_backward(&self, _: &FusedShape, _: usize) -> bool {
        self.supports_backward
    }

    unsafe fn forward(&self, _: Stream, _: &FusedShape, _: &AttentionOperands) -> Done {
        (self.observer)(NullCall::Attention);
        Ok(())
    }

    unsafe fn backward(
        &self,
        _: Stream,
        _: &FusedShape,
        _: &AttentionOperands,
        _: &AttentionGradients,
    ) -> Done {
        (self.observer)(NullCall::AttentionBackward);
        Ok(())
    }
}

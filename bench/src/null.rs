//! A device that answers at once and does nothing, so that all the time that passes is the host's.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use meshwright::backend::AttentionShape;
use meshwright::backend::cuda::{
    AttentionGradients, AttentionOperands, Driver, DriverError, Event, Function, FusedAttention,
    Graph, Grid, MatMul, MatMulOperands, Module, Properties, Source, Stream,
};

/// Kinds of calls that are counted.
#[derive(Debug, Clone, Copy)]
pub enum Call {
    /// Kernels of our own.
    Launch,
    /// Matrix products.
    Product,
    /// The vendor's attention, forward or backward.
    Attention,
    /// Copies of any direction, and zeroed memory.
    Copy,
    /// Recorded events.
    Record,
    /// Waits of a stream for an event.
    Wait,
    /// Events made.
    NewEvent,
    /// Waits of the host.
    Synchronize,
    /// Device memory taken.
    Alloc,
}

impl Call {
    /// Every kind, and what the report calls it.
    pub const ALL: [(Call, &'static str); 9] = [
        (Call::Launch, "launches"),
        (Call::Product, "products"),
        (Call::Attention, "attention"),
        (Call::Copy, "copies"),
        (Call::Record, "events recorded"),
        (Call::Wait, "waits for events"),
        (Call::NewEvent, "events made"),
        (Call::Synchronize, "waits of the host"),
        (Call::Alloc, "allocations"),
    ];
}

/// How often each kind of call was made.
pub type Counts = [u64; Call::ALL.len()];

/// Addresses and handles are numbers that nobody follows; only page-locked memory is there.
#[derive(Debug)]
pub struct NullDriver {
    properties: Properties,
    calls: [AtomicU64; Call::ALL.len()],
    /// The kernels that were loaded, and how often each was launched.
    kernels: Mutex<Vec<(String, u64)>>,
    /// The sources that were loaded.
    sources: Mutex<Vec<Source>>,
    next: AtomicU64,
}

impl Default for NullDriver {
    fn default() -> NullDriver {
        NullDriver::new()
    }
}

impl NullDriver {
    /// With the sizes of an H200.
    pub fn new() -> NullDriver {
        let properties = Properties {
            name: "null".to_string(),
            capability: (9, 0),
            multiprocessors: 132,
            memory: 141 << 30,
            shared_memory: 227 << 10,
        };
        let (calls, kernels, sources) = Default::default();
        NullDriver { properties, calls, kernels, sources, next: AtomicU64::new(1 << 20) }
    }

    /// The calls so far.
    pub fn counts(&self) -> Counts {
        self.calls.each_ref().map(|count| count.load(Relaxed))
    }

    /// The sources that were loaded so far.
    pub fn sources(&self) -> Vec<Source> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often each kernel was launched so far.
    pub fn kernels(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for (name, count) in &*self.known() {
            *counts.entry(name.clone()).or_default() += count;
        }
        counts
    }

    fn known(&self) -> MutexGuard<'_, Vec<(String, u64)>> {
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, call: Call) -> Result<(), DriverError> {
        self.calls[call as usize].fetch_add(1, Relaxed);
        Ok(())
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }
}

const PAGE: usize = 4096;

impl Driver for NullDriver {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn free_memory(&self) -> Result<usize, DriverError> {
        Ok(self.properties().memory)
    }

    fn alloc(&self, bytes: usize) -> Result<u64, DriverError> {
        self.count(Call::Alloc)?;
        Ok(self.next.fetch_add(bytes as u64 + 512, Relaxed).next_multiple_of(256))
    }

    unsafe fn free(&self, _: u64, _: usize) -> Result<(), DriverError> {
        Ok(())
    }

    fn scratch_bytes(&self, _: &[Stream]) -> usize {
        0
    }

    fn alloc_pinned(&self, bytes: usize) -> Result<*mut u8, DriverError> {
        match Layout::from_size_align(bytes, PAGE) {
            // SAFETY: the layout is not empty: a driver is asked for at least one byte.
            Ok(layout) if bytes > 0 => Ok(unsafe { alloc_zeroed(layout) }),
            _ => Err(DriverError::OutOfMemory { bytes }),
        }
    }

    unsafe fn free_pinned(&self, memory: *mut u8, bytes: usize) -> Result<(), DriverError> {
        if let Ok(layout) = Layout::from_size_align(bytes, PAGE) {
            // SAFETY: `alloc_pinned` gave this memory with the same layout.
            unsafe { dealloc(memory, layout) };
        }
        Ok(())
    }

    fn new_stream(&self, _: bool) -> Result<Stream, DriverError> {
        Ok(Stream(self.number()))
    }

    fn free_stream(&self, _: Stream) -> Result<(), DriverError> {
        Ok(())
    }

    fn synchronize(&self, _: Stream) -> Result<(), DriverError> {
        self.count(Call::Synchronize)
    }

    fn new_event(&self, _: bool) -> Result<Event, DriverError> {
        self.count(Call::NewEvent)?;
        Ok(Event(self.number()))
    }

    fn free_event(&self, _: Event) -> Result<(), DriverError> {
        Ok(())
    }

    fn record(&self, _: Event, _: Stream) -> Result<(), DriverError> {
        self.count(Call::Record)
    }

    fn wait(&self, _: Stream, _: Event) -> Result<(), DriverError> {
        self.count(Call::Wait)
    }

    fn is_done(&self, _: Event) -> Result<bool, DriverError> {
        Ok(true)
    }

    fn elapsed_ms(&self, _: Event, _: Event) -> Result<f32, DriverError> {
        Ok(0.0)
    }

    unsafe fn upload(
        &self,
        _: Stream,
        _: u64,
        _: *const c_void,
        _: usize,
    ) -> Result<(), DriverError> {
        self.count(Call::Copy)
    }

    unsafe fn download(
        &self,
        _: Stream,
        _: *mut c_void,
        _: u64,
        _: usize,
    ) -> Result<(), DriverError> {
        self.count(Call::Copy)
    }

    unsafe fn copy(&self, _: Stream, _: u64, _: u64, _: usize) -> Result<(), DriverError> {
        self.count(Call::Copy)
    }

    unsafe fn zero(&self, _: Stream, _: u64, _: usize) -> Result<(), DriverError> {
        self.count(Call::Copy)
    }

    fn load(&self, source: &Source) -> Result<Module, DriverError> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).push(source.clone());
        Ok(Module(self.number()))
    }

    fn function(&self, _: Module, name: &str) -> Result<Function, DriverError> {
        let mut kernels = self.known();
        kernels.push((name.to_string(), 0));
        Ok(Function(kernels.len() as u64 - 1))
    }

    unsafe fn launch(
        &self,
        _: Stream,
        function: Function,
        _: Grid,
        _: &[&[u8]],
    ) -> Result<(), DriverError> {
        if let Some((_, count)) = self.known().get_mut(function.0 as usize) {
            *count += 1;
        }
        self.count(Call::Launch)
    }

    fn has_matmul(&self, _: &MatMul) -> Result<bool, DriverError> {
        Ok(true)
    }

    unsafe fn matmul(&self, _: Stream, _: &MatMul, _: &MatMulOperands) -> Result<(), DriverError> {
        self.count(Call::Product)
    }

    fn attention(&self) -> Option<&dyn FusedAttention> {
        Some(self)
    }

    fn begin_capture(&self, _: Stream) -> Result<(), DriverError> {
        Ok(())
    }

    fn end_capture(&self, _: Stream) -> Result<Graph, DriverError> {
        Ok(Graph(self.number()))
    }

    unsafe fn launch_graph(&self, _: Stream, _: Graph) -> Result<(), DriverError> {
        Ok(())
    }

    fn free_graph(&self, _: Graph) -> Result<(), DriverError> {
        Ok(())
    }
}

impl FusedAttention for NullDriver {
    fn supports(&self, _: &AttentionShape) -> bool {
        true
    }

    fn supports_backward(&self, _: &AttentionShape, _: usize) -> bool {
        true
    }

    unsafe fn forward(
        &self,
        _: Stream,
        _: &AttentionShape,
        _: &AttentionOperands,
    ) -> Result<(), DriverError> {
        self.count(Call::Attention)
    }

    unsafe fn backward(
        &self,
        _: Stream,
        _: &AttentionShape,
        _: &AttentionOperands,
        _: &AttentionGradients,
    ) -> Result<(), DriverError> {
        self.count(Call::Attention)
    }
}

//! A device that does nothing but note which sources it is asked to load.

use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend::cuda::gpu::lock;
use crate::backend::cuda::{
    Driver, DriverError, Event, Function, FusedAttention, Graph, Grid, MatMul, MatMulOperands,
    Module, Properties, Source, Stream,
};

/// Addresses and handles are numbers that nobody follows.
#[derive(Debug)]
pub struct Recorder {
    properties: Properties,
    sources: Mutex<Vec<Source>>,
    next: AtomicU64,
}

impl Recorder {
    /// With the sizes of an H100.
    pub fn new() -> Recorder {
        let properties = Properties {
            name: "recorder".to_string(),
            capability: (9, 0),
            multiprocessors: 132,
            memory: 80 << 30,
            shared_memory: 227 << 10,
        };
        Recorder { properties, sources: Mutex::default(), next: AtomicU64::new(1 << 20) }
    }

    /// The sources that were loaded, each once.
    pub fn sources(&self) -> Vec<Source> {
        lock(&self.sources).clone()
    }

    fn number(&self) -> u64 {
        self.advance(1)
    }

    fn advance(&self, by: u64) -> u64 {
        self.next.fetch_add(by, Ordering::Relaxed)
    }
}

impl Driver for Recorder {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn free_memory(&self) -> Result<usize, DriverError> {
        Ok(self.properties.memory)
    }

    fn alloc(&self, bytes: usize) -> Result<u64, DriverError> {
        // Room for what is asked, wherever the last number was.
        Ok(self.advance(bytes as u64 + 512).next_multiple_of(256))
    }

    unsafe fn free(&self, _: u64, _: usize) -> Result<(), DriverError> {
        Ok(())
    }

    fn scratch_bytes(&self, _: &[Stream]) -> usize {
        0
    }

    fn alloc_pinned(&self, _: usize) -> Result<*mut u8, DriverError> {
        Err(DriverError::NoDevice("a recorder has no memory".to_string()))
    }

    unsafe fn free_pinned(&self, _: *mut u8, _: usize) -> Result<(), DriverError> {
        Ok(())
    }

    fn new_stream(&self, _: bool) -> Result<Stream, DriverError> {
        Ok(Stream(self.number()))
    }

    fn free_stream(&self, _: Stream) -> Result<(), DriverError> {
        Ok(())
    }

    fn synchronize(&self, _: Stream) -> Result<(), DriverError> {
        Ok(())
    }

    fn new_event(&self, _: bool) -> Result<Event, DriverError> {
        Ok(Event(self.number()))
    }

    fn free_event(&self, _: Event) -> Result<(), DriverError> {
        Ok(())
    }

    fn record(&self, _: Event, _: Stream) -> Result<(), DriverError> {
        Ok(())
    }

    fn wait(&self, _: Stream, _: Event) -> Result<(), DriverError> {
        Ok(())
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
        Ok(())
    }

    unsafe fn download(
        &self,
        _: Stream,
        _: *mut c_void,
        _: u64,
        _: usize,
    ) -> Result<(), DriverError> {
        Ok(())
    }

    unsafe fn copy(&self, _: Stream, _: u64, _: u64, _: usize) -> Result<(), DriverError> {
        Ok(())
    }

    unsafe fn zero(&self, _: Stream, _: u64, _: usize) -> Result<(), DriverError> {
        Ok(())
    }

    fn load(&self, source: &Source) -> Result<Module, DriverError> {
        let mut sources = lock(&self.sources);
        let known = sources.iter().position(|known| known == source);
        let index = known.unwrap_or_else(|| {
            sources.push(source.clone());
            sources.len() - 1
        });
        Ok(Module(index as u64))
    }

    fn function(&self, _: Module, _: &str) -> Result<Function, DriverError> {
        Ok(Function(self.number()))
    }

    unsafe fn launch(
        &self,
        _: Stream,
        _: Function,
        _: Grid,
        _: &[&[u8]],
    ) -> Result<(), DriverError> {
        Ok(())
    }

    fn has_matmul(&self, _: &MatMul) -> Result<bool, DriverError> {
        Ok(true)
    }

    unsafe fn matmul(&self, _: Stream, _: &MatMul, _: &MatMulOperands) -> Result<(), DriverError> {
        Ok(())
    }

    fn attention(&self) -> Option<&dyn FusedAttention> {
        None
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

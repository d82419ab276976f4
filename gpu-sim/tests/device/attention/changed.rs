//! Simulated devices with modified kernels or with fused attention.

use std::ffi::c_void;
use std::fmt;

use meshwright_cuda::{
    DeviceProperties, Driver, DriverError, Event, FusedAttention, Graph, Grid, KernelFunction,
    KernelModule, KernelSource, MatMul, MatMulOperands, Stream,
};
use meshwright_gpu_sim::SimDriver;

/// A device that changes every source before it is compiled.
pub struct Changed<F> {
    pub device: SimDriver,
    pub change: F,
    /// Fused attention.
    pub attention: Option<Box<dyn FusedAttention + Send + Sync>>,
}

impl<F> fmt::Debug for Changed<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.device.fmt(f)
    }
}

/// Forwards methods to the simulated device.
macro_rules! unchanged {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> $result {
            self.device.$name($($arg),*)
        })*
    };
    (unsafe $($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $(unsafe fn $name(&self, $($arg: $type),*) -> $result {
            // SAFETY: as the caller promises.
            unsafe { self.device.$name($($arg),*) }
        })*
    };
}

type Done<T = ()> = Result<T, DriverError>;

impl<F: Fn(&KernelSource) -> KernelSource + Send + Sync> Driver for Changed<F> {
    fn load(&self, source: &KernelSource) -> Done<KernelModule> {
        self.device.load(&(self.change)(source))
    }

    fn attention(&self) -> Option<&dyn FusedAttention> {
        self.attention.as_deref().map(|attention| attention as &dyn FusedAttention)
    }

    unchanged! {
        properties() -> &DeviceProperties;
        free_memory() -> Done<usize>;
        alloc(bytes: usize) -> Done<u64>;
        workspace_bytes(streams: &[Stream]) -> usize;
        alloc_pinned(bytes: usize) -> Done<*mut u8>;
        new_stream(high_priority: bool) -> Done<Stream>;
        free_stream(stream: Stream) -> Done;
        synchronize(stream: Stream) -> Done;
        new_event(timed: bool) -> Done<Event>;
        free_event(event: Event) -> Done;
        record(event: Event, stream: Stream) -> Done;
        record_in_graph(event: Event, stream: Stream) -> Done;
        wait(stream: Stream, event: Event) -> Done;
        is_done(event: Event) -> Done<bool>;
        elapsed_ms(from: Event, to: Event) -> Done<f32>;
        function(module: KernelModule, name: &str) -> Done<KernelFunction>;
        has_matmul(shape: &MatMul) -> Done<bool>;
        begin_capture(stream: Stream) -> Done;
        end_capture(stream: Stream) -> Done<Graph>;
        free_graph(graph: Graph) -> Done;
    }

    unchanged! {
        unsafe
        free(address: u64, bytes: usize) -> Done;
        free_pinned(memory: *mut u8, bytes: usize) -> Done;
        upload(stream: Stream, dst: u64, src: *const c_void, bytes: usize) -> Done;
        download(stream: Stream, dst: *mut c_void, src: u64, bytes: usize) -> Done;
        copy(stream: Stream, dst: u64, src: u64, bytes: usize) -> Done;
        zero(stream: Stream, dst: u64, bytes: usize) -> Done;
        launch(stream: Stream, function: KernelFunction, grid: Grid, args: &[&[u8]]) -> Done;
        matmul(stream: Stream, shape: &MatMul, operands: &MatMulOperands) -> Done;
        launch_graph(stream: Stream, graph: Graph) -> Done;
    }
}

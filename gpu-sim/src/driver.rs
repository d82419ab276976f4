//! The driver of one rank on a simulated device.

use std::ffi::c_void;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use meshwright_cuda::{
    DeviceProperties, Driver, DriverError, Event, FusedAttention, Graph, Grid, KernelFunction,
    KernelModule, KernelSource, MatMul, MatMulOperands, Stream,
};

use crate::device::SimDevice;
use crate::graph::{Capture, Replay};
use crate::kernel::{self, Arguments};
use crate::log::Call;
use crate::memory::failure;
use crate::state::{EventState, Last, State, StreamState, Work};
use crate::task::Task;

/// The driver of one rank on a [`SimDevice`].
#[derive(Debug)]
pub struct SimDriver {
    device: SimDevice,
    number: usize,
}

impl SimDevice {
    /// Creates a driver for one more rank.
    pub fn driver(&self) -> SimDriver {
        SimDriver { device: self.clone(), number: self.next_driver_number() }
    }
}

impl SimDriver {
    /// Creates the only driver of a device like an H100; see [`SimDevice::new`].
    pub fn new(seed: u64) -> SimDriver {
        SimDevice::new(seed).driver()
    }

    /// Returns the device.
    pub fn device(&self) -> &SimDevice {
        &self.device
    }

    /// Submits work of another library, which runs when the stream reaches it and must not call the device. It is
    /// captured like all other work.
    ///
    /// # Errors
    /// As for every call.
    pub fn submit(
        &self,
        stream: Stream,
        work: impl Fn() + Send + Sync + 'static,
    ) -> Result<(), DriverError> {
        self.device.state().submit("submit", stream.0, Task::Other(Arc::new(work)))
    }

    /// Submits like [`submit`](Self::submit), but the stream waits until `is_ready` returns true, which must not call
    /// the device either.
    ///
    /// # Errors
    /// As for every call.
    pub fn submit_when(
        &self,
        stream: Stream,
        is_ready: impl Fn() -> bool + Send + Sync + 'static,
        work: impl Fn() + Send + Sync + 'static,
    ) -> Result<(), DriverError> {
        let task = Task::When(Arc::new(is_ready), Arc::new(work));
        self.device.state().submit("submit_when", stream.0, task)
    }

    /// Returns the unique number of a stream's capture.
    pub fn capture_id(&self, stream: Stream) -> Option<u64> {
        self.device.state().streams.get(&stream.0)?.capture
    }

    /// Executes work until `stream` is empty. While all remaining work waits for an event outside of the device, other
    /// ranks may use the device.
    fn drain_stream<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        call: &'static str,
        stream: Stream,
    ) -> Result<MutexGuard<'a, State>, DriverError> {
        require_live(call, state.stream(call, stream.0)?)?;
        while !state.stream(call, stream.0)?.queue.is_empty() {
            if state.advance()? {
                continue;
            }
            if !state.waits_outside() {
                return Err(failure(call, "no stream can go on".to_string()));
            }
            drop(state);
            std::thread::sleep(OUTSIDE_PERIOD);
            state = self.device.state();
        }
        Ok(state)
    }

    /// Logs a call and returns the locked device state.
    fn log_call(&self, call: Call) -> Result<MutexGuard<'_, State>, DriverError> {
        let mut state = self.device.state();
        state.log_call(self.number, call)?;
        Ok(state)
    }
}

/// Interval at which waits of streams for work outside of the device are polled.
const OUTSIDE_PERIOD: Duration = Duration::from_micros(200);

/// Returns an error if the stream is being captured.
fn require_live(call: &'static str, stream: &StreamState) -> Result<(), DriverError> {
    match stream.capture {
        Some(_) => Err(failure(call, "the stream is being captured".to_string())),
        None => Ok(()),
    }
}

impl Driver for SimDriver {
    fn properties(&self) -> &DeviceProperties {
        self.device.properties()
    }

    fn free_memory(&self) -> Result<usize, DriverError> {
        Ok(self.log_call(Call::FreeMemory {})?.memory.unused())
    }

    fn alloc(&self, bytes: usize) -> Result<u64, DriverError> {
        self.log_call(Call::Alloc { bytes })?.memory.alloc(bytes)
    }

    unsafe fn free(&self, address: u64, bytes: usize) -> Result<(), DriverError> {
        self.log_call(Call::Free { bytes })?.memory.free(address, bytes)
    }

    fn workspace_bytes(&self, _: &[Stream]) -> usize {
        0
    }

    fn alloc_pinned(&self, bytes: usize) -> Result<*mut u8, DriverError> {
        let mut state = self.log_call(Call::AllocPinned { bytes })?;
        let mut memory = vec![0xffu8; bytes.max(1)].into_boxed_slice();
        let address = memory.as_mut_ptr();
        state.pinned.insert(address as usize, memory);
        Ok(address)
    }

    unsafe fn free_pinned(&self, memory: *mut u8, bytes: usize) -> Result<(), DriverError> {
        let mut state = self.log_call(Call::FreePinned { bytes })?;
        let known =
            state.pinned.get(&(memory as usize)).is_some_and(|block| block.len() == bytes.max(1));
        if !known {
            return Err(failure(
                "free_pinned",
                format!("no {bytes} bytes were allocated at {memory:p}"),
            ));
        }
        state.pinned.remove(&(memory as usize));
        Ok(())
    }

    fn new_stream(&self, high_priority: bool) -> Result<Stream, DriverError> {
        let mut state = self.device.state();
        let stream = Stream(state.new_handle());
        state.log_call(self.number, Call::NewStream { stream, high_priority })?;
        state.streams.insert(stream.0, StreamState::default());
        Ok(stream)
    }

    fn free_stream(&self, stream: Stream) -> Result<(), DriverError> {
        let state = self.log_call(Call::FreeStream { stream })?;
        let mut state = self.drain_stream(state, "free_stream", stream)?;
        state.streams.remove(&stream.0);
        Ok(())
    }

    fn synchronize(&self, stream: Stream) -> Result<(), DriverError> {
        let state = self.log_call(Call::Synchronize { stream })?;
        let state = self.drain_stream(state, "synchronize", stream)?;
        state.memory.check().map_err(|reason| failure("synchronize", reason))
    }

    fn new_event(&self, timed: bool) -> Result<Event, DriverError> {
        let mut state = self.device.state();
        let event = Event(state.new_handle());
        state.log_call(self.number, Call::NewEvent { event, timed })?;
        state.events.insert(event.0, EventState { timed, last: Last::Never });
        Ok(event)
    }

    fn free_event(&self, event: Event) -> Result<(), DriverError> {
        let mut state = self.log_call(Call::FreeEvent { event })?;
        state.event("free_event", event.0)?;
        state.events.remove(&event.0);
        Ok(())
    }

    fn record(&self, event: Event, stream: Stream) -> Result<(), DriverError> {
        let mut state = self.log_call(Call::Record { event, stream })?;
        state.record(event.0, stream.0)
    }

    fn record_in_graph(&self, event: Event, stream: Stream) -> Result<(), DriverError> {
        let mut state = self.log_call(Call::RecordInGraph { event, stream })?;
        state.record_in_graph(event.0, stream.0)
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<(), DriverError> {
        let mut state = self.log_call(Call::Wait { stream, event })?;
        state.wait(stream.0, event.0)
    }

    fn is_done(&self, event: Event) -> Result<bool, DriverError> {
        let mut state = self.log_call(Call::IsDone { event })?;
        state.is_done(event.0)
    }

    fn elapsed_ms(&self, from: Event, to: Event) -> Result<f32, DriverError> {
        let mut state = self.log_call(Call::ElapsedMs { from, to })?;
        state.elapsed_ms(from.0, to.0)
    }

    unsafe fn upload(
        &self,
        stream: Stream,
        dst: u64,
        src: *const c_void,
        bytes: usize,
    ) -> Result<(), DriverError> {
        let mut state =
            self.log_call(Call::Upload { stream, bytes: require_bytes("upload", bytes)? })?;
        state.submit("upload", stream.0, Task::Upload { dst, src: src as usize, bytes })
    }

    unsafe fn download(
        &self,
        stream: Stream,
        dst: *mut c_void,
        src: u64,
        bytes: usize,
    ) -> Result<(), DriverError> {
        let mut state =
            self.log_call(Call::Download { stream, bytes: require_bytes("download", bytes)? })?;
        state.submit("download", stream.0, Task::Download { dst: dst as usize, src, bytes })
    }

    unsafe fn copy(
        &self,
        stream: Stream,
        dst: u64,
        src: u64,
        bytes: usize,
    ) -> Result<(), DriverError> {
        self.log_call(Call::Copy { stream, bytes: require_bytes("copy", bytes)? })?.submit(
            "copy",
            stream.0,
            Task::Copy { dst, src, bytes },
        )
    }

    unsafe fn zero(&self, stream: Stream, dst: u64, bytes: usize) -> Result<(), DriverError> {
        self.log_call(Call::Zero { stream, bytes: require_bytes("zero", bytes)? })?.submit(
            "zero",
            stream.0,
            Task::Zero { dst, bytes },
        )
    }

    fn load(&self, source: &KernelSource) -> Result<KernelModule, DriverError> {
        let known = |state: &State| state.modules.iter().position(|(known, _)| known == source);
        if let Some(index) = known(&*self.log_call(Call::Load { source: source.name.to_string() })?)
        {
            return Ok(KernelModule(index as u64));
        }
        // Other ranks continue while the compiler runs.
        let library = kernel::load(source)?;
        let mut state = self.device.state();
        if let Some(index) = known(&state) {
            return Ok(KernelModule(index as u64));
        }
        state.modules.push((source.clone(), library));
        Ok(KernelModule(state.modules.len() as u64 - 1))
    }

    fn function(&self, module: KernelModule, name: &str) -> Result<KernelFunction, DriverError> {
        let mut state = self.log_call(Call::Function { kernel: name.to_string() })?;
        let Some((_, library)) = state.modules.get(module.0 as usize) else {
            return Err(failure("function", format!("there is no module {}", module.0)));
        };
        let kernel = library.kernel(name)?;
        state.functions.push(kernel);
        Ok(KernelFunction(state.functions.len() as u64 - 1))
    }

    unsafe fn launch(
        &self,
        stream: Stream,
        function: KernelFunction,
        grid: Grid,
        args: &[&[u8]],
    ) -> Result<(), DriverError> {
        let mut state = self.device.state();
        let Some(kernel) = state.functions.get(function.0 as usize).cloned() else {
            return Err(failure("launch", format!("there is no function {}", function.0)));
        };
        state.log_call(self.number, Call::Launch { stream, kernel: kernel.name.clone(), grid })?;
        let most_shared = self.properties().shared_memory;
        kernel.check(&grid, args, most_shared).map_err(|reason| failure("launch", reason))?;
        state.submit("launch", stream.0, Task::Launch { kernel, grid, args: Arguments::new(args) })
    }

    fn has_matmul(&self, shape: &MatMul) -> Result<bool, DriverError> {
        // As cuBLASLt on an H100: rows are multiples of 16 bytes.
        Ok(shape.gemm.n.is_multiple_of(8))
    }

    unsafe fn matmul(
        &self,
        stream: Stream,
        shape: &MatMul,
        operands: &MatMulOperands,
    ) -> Result<(), DriverError> {
        let (shape, operands) = (*shape, *operands);
        let mut state = self.log_call(Call::MatMul { stream, shape })?;
        state.submit("matmul", stream.0, Task::MatMul { shape, operands })
    }

    fn attention(&self) -> Option<&dyn FusedAttention> {
        None
    }

    fn begin_capture(&self, stream: Stream) -> Result<(), DriverError> {
        let mut state = self.log_call(Call::BeginCapture { stream })?;
        let capture = state.new_handle();
        let origin = state.stream("begin_capture", stream.0)?;
        require_live("begin_capture", origin)?;
        origin.capture = Some(capture);
        state.captures.insert(capture, Capture::new(stream.0));
        Ok(())
    }

    fn end_capture(&self, stream: Stream) -> Result<Graph, DriverError> {
        let mut state = self.device.state();
        let entered = state.log_call(self.number, Call::EndCapture { stream });
        let capture = state.stream("end_capture", stream.0)?.capture;
        let began_here =
            |capture: &u64| state.captures.get(capture).is_some_and(|c| c.origin == stream.0);
        let ended = capture.filter(began_here).and_then(|capture| state.captures.remove(&capture));
        let Some(ended) = ended else {
            return Err(failure("end_capture", "no capture began on this stream".to_string()));
        };
        for joined in ended.streams() {
            if let Some(stream) = state.streams.get_mut(&joined) {
                stream.capture = None;
            }
        }
        // A failed call ends the capture too.
        entered?;
        let graph = state.new_handle();
        state.graphs.insert(graph, Arc::new(ended.end()?));
        Ok(Graph(graph))
    }

    unsafe fn launch_graph(&self, stream: Stream, graph: Graph) -> Result<(), DriverError> {
        let mut state = self.log_call(Call::LaunchGraph { stream, graph })?;
        let Some(graph) = state.graphs.get(&graph.0).cloned() else {
            return Err(failure("launch_graph", format!("there is no graph {}", graph.0)));
        };
        let target = state.stream("launch_graph", stream.0)?;
        require_live("launch_graph", target)?;
        target.queue.push_back(Work::Graph(Replay::new(graph)));
        state.run_some()
    }

    fn free_graph(&self, graph: Graph) -> Result<(), DriverError> {
        let mut state = self.log_call(Call::FreeGraph { graph })?;
        let freed = state.graphs.remove(&graph.0);
        freed
            .map(|_| ())
            .ok_or_else(|| failure("free_graph", format!("there is no graph {}", graph.0)))
    }
}

/// Refuses empty transfers, as a driver may: the address of an empty block belongs to no allocation.
fn require_bytes(call: &'static str, bytes: usize) -> Result<usize, DriverError> {
    match bytes {
        0 => Err(failure(call, "of 0 bytes".to_owned())),
        bytes => Ok(bytes),
    }
}

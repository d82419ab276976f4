//! The driver of one rank on a simulated device.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use meshwright_cuda::{
    CallKind, DeviceProperties, Driver, DriverError, Event, GpuCall, KernelFunction, KernelModule,
    KernelSource, Reply, Stream,
};

use crate::device::SimDevice;
use crate::kernel::{self, Arguments};
use crate::memory::failure;
use crate::state::{EventState, Last, State, StreamState};
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
    pub fn submit_work(
        &self,
        stream: Stream,
        work: impl Fn() + Send + Sync + 'static,
    ) -> Result<(), DriverError> {
        self.device.state().submit("submit_work", stream.0, Task::Other(Arc::new(work)))
    }

    /// Submits like [`submit_work`](Self::submit_work), but the stream waits until `is_ready` returns true, which must
    /// not call the device either.
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
        state.stream(call, stream.0)?.require_live(call)?;
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

    /// Loads a source; other ranks continue while the compiler runs.
    fn load<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        source: &KernelSource,
    ) -> Result<KernelModule, DriverError> {
        let known = |state: &State| state.modules.iter().position(|(known, _)| known == source);
        if let Some(index) = known(&state) {
            return Ok(KernelModule(index as u64));
        }
        drop(state);
        let library = kernel::load(source)?;
        state = self.device.state();
        if let Some(index) = known(&state) {
            return Ok(KernelModule(index as u64));
        }
        state.modules.push((source.clone(), library));
        Ok(KernelModule(state.modules.len() as u64 - 1))
    }
}

/// Interval at which waits of streams for work outside of the device are polled.
const OUTSIDE_PERIOD: Duration = Duration::from_micros(200);

impl Driver for SimDriver {
    fn properties(&self) -> &DeviceProperties {
        self.device.properties()
    }

    unsafe fn submit(&self, call: GpuCall<'_>) -> Result<Reply, DriverError> {
        let mut state = self.device.state();
        let logged = state.log_call(self.number, &call);
        // A failed end of a capture ends it too.
        if call.kind() != CallKind::EndCapture {
            logged.clone()?;
        }
        let reply = match call {
            GpuCall::FreeMemory {} => state.memory.unused().into(),
            GpuCall::Alloc { bytes } => state.memory.alloc(bytes)?.into(),
            GpuCall::Free { address, bytes } => state.memory.free(address, bytes)?.into(),
            GpuCall::AllocPinned { bytes } => state.alloc_pinned(bytes).into(),
            GpuCall::FreePinned { memory, bytes } => state.free_pinned(memory, bytes)?.into(),
            GpuCall::NewStream { .. } => {
                let stream = Stream(state.new_handle());
                state.streams.insert(stream.0, StreamState::default());
                state.log.last_mut().expect("this call").stream = Some(stream);
                stream.into()
            }
            GpuCall::FreeStream { stream } => {
                let mut state = self.drain_stream(state, "free_stream", stream)?;
                state.streams.remove(&stream.0);
                ().into()
            }
            GpuCall::Synchronize { stream } => {
                let state = self.drain_stream(state, "synchronize", stream)?;
                state.memory.check().map_err(|reason| failure("synchronize", reason))?.into()
            }
            GpuCall::NewEvent { timed } => {
                let event = Event(state.new_handle());
                state.events.insert(event.0, EventState { timed, last: Last::Never });
                event.into()
            }
            GpuCall::FreeEvent { event } => {
                state.event("free_event", event.0)?;
                state.events.remove(&event.0);
                ().into()
            }
            GpuCall::Record { event, stream } => state.record(event.0, stream.0)?.into(),
            GpuCall::RecordInGraph { event, stream } => {
                state.record_in_graph(event.0, stream.0)?.into()
            }
            GpuCall::Wait { stream, event } => state.wait(stream.0, event.0)?.into(),
            GpuCall::IsDone { event } => state.is_done(event.0)?.into(),
            GpuCall::ElapsedMs { from, to } => state.elapsed_ms(from.0, to.0)?.into(),
            GpuCall::Upload { stream, dst, src, bytes } => {
                let task = Task::Upload { dst, src: src as usize, bytes };
                state.transfer("upload", stream.0, bytes, task)?.into()
            }
            GpuCall::Download { stream, dst, src, bytes } => {
                let task = Task::Download { dst: dst as usize, src, bytes };
                state.transfer("download", stream.0, bytes, task)?.into()
            }
            GpuCall::Copy { stream, dst, src, bytes } => {
                state.transfer("copy", stream.0, bytes, Task::Copy { dst, src, bytes })?.into()
            }
            GpuCall::Zero { stream, dst, bytes } => {
                state.transfer("zero", stream.0, bytes, Task::Zero { dst, bytes })?.into()
            }
            GpuCall::Load { source } => self.load(state, source)?.into(),
            GpuCall::Function { module, name } => {
                let Some((_, library)) = state.modules.get(module.0 as usize) else {
                    return Err(failure("function", format!("there is no module {}", module.0)));
                };
                let kernel = library.kernel(name)?;
                state.functions.push(kernel);
                KernelFunction(state.functions.len() as u64 - 1).into()
            }
            GpuCall::Launch { stream, function, grid, args } => {
                let Some(kernel) = state.functions.get(function.0 as usize).cloned() else {
                    return Err(failure("launch", format!("there is no function {}", function.0)));
                };
                let most_shared = self.properties().shared_memory;
                let checked = kernel.check(&grid, args, most_shared);
                checked.map_err(|reason| failure("launch", reason))?;
                let task = Task::Launch { kernel, grid, args: Arguments::new(args) };
                state.submit("launch", stream.0, task)?.into()
            }
            // As cuBLASLt on an H100: rows are multiples of 16 bytes.
            GpuCall::HasMatMul { shape } => shape.gemm.n.is_multiple_of(8).into(),
            GpuCall::MatMul { stream, shape, operands } => {
                let task = Task::MatMul { shape: *shape, operands: *operands };
                state.submit("matmul", stream.0, task)?.into()
            }
            GpuCall::Attention { .. } | GpuCall::AttentionBackward { .. } => {
                return Err(failure("attention", "there is no library".to_string()));
            }
            GpuCall::BeginCapture { stream } => state.begin_capture(stream.0)?.into(),
            GpuCall::EndCapture { stream } => state.end_capture(stream.0, logged)?.into(),
            GpuCall::LaunchGraph { stream, graph } => state.launch_graph(stream.0, graph.0)?.into(),
            GpuCall::FreeGraph { graph } => match state.graphs.remove(&graph.0) {
                Some(_) => ().into(),
                None => {
                    return Err(failure("free_graph", format!("there is no graph {}", graph.0)));
                }
            },
        };
        Ok(reply)
    }
}

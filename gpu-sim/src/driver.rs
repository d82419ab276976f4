//! The driver of one rank.

use std::ffi::c_void;
use std::sync::Arc;

use meshwright::backend::cuda::{
    Driver, DriverError, Event, Function, FusedAttention, Graph, Grid, MatMul, MatMulOperands,
    Module, Properties, Source, Stream,
};

use crate::device::SimDevice;
use crate::graph::{Capture, Replay};
use crate::kernel::{self, Arguments};
use crate::log::Call;
use crate::memory::failure;
use crate::state::{EventState, Last, State, StreamState, Work};
use crate::task::Task;

/// The hold of one rank on a [`SimDevice`].
#[derive(Debug)]
pub struct SimDriver {
    device: SimDevice,
    number: usize,
}

impl SimDriver {
    /// The only driver of a device like an H100; see [`SimDevice::new`].
    pub fn new(seed: u64) -> SimDriver {
        SimDevice::new(seed).driver()
    }

    pub(crate) fn new_on(device: SimDevice, number: usize) -> SimDriver {
        SimDriver { device, number }
    }

    /// The device.
    pub fn device(&self) -> &SimDevice {
        &self.device
    }

    /// Submits work of another library, which is done when the stream comes to it, and may not ask for anything of the
    /// device. It is recorded as all other work.
    ///
    /// # Errors
    /// As of every call.
    pub fn submit(
        &self,
        stream: Stream,
        work: impl Fn() + Send + Sync + 'static,
    ) -> Result<(), DriverError> {
        self.device.state().submit("submit", stream.0, Task::Other(Arc::new(work)))
    }

    /// The recording in which a stream takes part: a number that no other recording has.
    pub fn recording_of(&self, stream: Stream) -> Option<u64> {
        self.device.state().streams.get(&stream.0)?.capture
    }

    /// Notes a call, and gives the state of the device for it.
    fn enter(&self, call: Call) -> Result<std::sync::MutexGuard<'_, State>, DriverError> {
        let mut state = self.device.state();
        state.enter(self.number, call)?;
        Ok(state)
    }
}

/// Refuses what cannot be asked of a stream whose work is recorded.
fn require_live(call: &'static str, stream: &StreamState) -> Result<(), DriverError> {
    match stream.capture {
        Some(_) => Err(failure(call, "the work of the stream is being recorded".to_string())),
        None => Ok(()),
    }
}

/// Works until `stream` has nothing left.
fn finish(state: &mut State, call: &'static str, stream: Stream) -> Result<(), DriverError> {
    require_live(call, state.stream(call, stream.0)?)?;
    while !state.stream(call, stream.0)?.queue.is_empty() {
        if !state.advance()? {
            return Err(failure(call, "no stream can go on".to_string()));
        }
    }
    Ok(())
}

impl Driver for SimDriver {
    fn properties(&self) -> &Properties {
        self.device.properties()
    }

    fn free_memory(&self) -> Result<usize, DriverError> {
        Ok(self.enter(Call::FreeMemory {})?.memory.unused())
    }

    fn alloc(&self, bytes: usize) -> Result<u64, DriverError> {
        self.enter(Call::Alloc { bytes })?.memory.alloc(bytes)
    }

    unsafe fn free(&self, address: u64, bytes: usize) -> Result<(), DriverError> {
        self.enter(Call::Free { bytes })?.memory.free(address, bytes)
    }

    fn scratch_bytes(&self, _: &[Stream]) -> usize {
        0
    }

    fn alloc_pinned(&self, bytes: usize) -> Result<*mut u8, DriverError> {
        let mut state = self.enter(Call::AllocPinned { bytes })?;
        let mut memory = vec![0xffu8; bytes.max(1)].into_boxed_slice();
        let address = memory.as_mut_ptr();
        state.pinned.insert(address as usize, memory);
        Ok(address)
    }

    unsafe fn free_pinned(&self, memory: *mut u8, bytes: usize) -> Result<(), DriverError> {
        let mut state = self.enter(Call::FreePinned { bytes })?;
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

    fn new_stream(&self, urgent: bool) -> Result<Stream, DriverError> {
        let mut state = self.device.state();
        let stream = Stream(state.handle());
        state.enter(self.number, Call::NewStream { stream, urgent })?;
        state.streams.insert(stream.0, StreamState::default());
        Ok(stream)
    }

    fn free_stream(&self, stream: Stream) -> Result<(), DriverError> {
        let mut state = self.enter(Call::FreeStream { stream })?;
        finish(&mut state, "free_stream", stream)?;
        state.streams.remove(&stream.0);
        Ok(())
    }

    fn synchronize(&self, stream: Stream) -> Result<(), DriverError> {
        let mut state = self.enter(Call::Synchronize { stream })?;
        finish(&mut state, "synchronize", stream)?;
        state.memory.check().map_err(|reason| failure("synchronize", reason))
    }

    fn new_event(&self, timed: bool) -> Result<Event, DriverError> {
        let mut state = self.device.state();
        let event = Event(state.handle());
        state.enter(self.number, Call::NewEvent { event, timed })?;
        state.events.insert(event.0, EventState { timed, last: Last::Never });
        Ok(event)
    }

    fn free_event(&self, event: Event) -> Result<(), DriverError> {
        let mut state = self.enter(Call::FreeEvent { event })?;
        state.event("free_event", event.0)?;
        state.events.remove(&event.0);
        Ok(())
    }

    fn record(&self, event: Event, stream: Stream) -> Result<(), DriverError> {
        let mut state = self.enter(Call::Record { event, stream })?;
        state.event("record", event.0)?;
        let source = state.stream("record", stream.0)?;
        let last = match source.capture {
            None => {
                let ticket = Arc::default();
                source.queue.push_back(Work::Record(Arc::clone(&ticket)));
                Last::Submitted(ticket)
            }
            Some(capture) => {
                let after = state
                    .captures
                    .get(&capture)
                    .map_or_else(Vec::new, |capture| capture.head(stream.0));
                Last::Captured { capture, after }
            }
        };
        state.event("record", event.0)?.last = last;
        state.stir()
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<(), DriverError> {
        let mut state = self.enter(Call::Wait { stream, event })?;
        let last = state.event("wait", event.0)?.last.clone();
        let waiting = state.stream("wait", stream.0)?;
        match (last, waiting.capture) {
            // What has never been recorded is not waited for.
            (Last::Never, _) => Ok(()),
            (Last::Submitted(ticket), None) => {
                waiting.queue.push_back(Work::Wait(ticket));
                state.stir()
            }
            (Last::Submitted(_), Some(_)) => Err(failure(
                "wait",
                "a stream that is recorded waits for an event that is not".to_string(),
            )),
            (Last::Captured { capture, after }, own) => {
                if own.is_some_and(|own| own != capture) {
                    return Err(failure(
                        "wait",
                        "a recording waits for an event of another one".to_string(),
                    ));
                }
                let Some(recording) = state.captures.get_mut(&capture) else {
                    return Err(failure(
                        "wait",
                        "the event belongs to a recording that has ended".to_string(),
                    ));
                };
                recording.join(stream.0, &after);
                state.stream("wait", stream.0)?.capture = Some(capture);
                Ok(())
            }
        }
    }

    fn is_done(&self, event: Event) -> Result<bool, DriverError> {
        let mut state = self.enter(Call::IsDone { event })?;
        match state.event("is_done", event.0)?.last.clone() {
            Last::Never => Ok(true),
            Last::Submitted(ticket) => {
                // Whoever asks again and again is answered yes some day.
                if ticket.get().is_none() {
                    state.advance()?;
                }
                Ok(ticket.get().is_some())
            }
            Last::Captured { .. } => {
                Err(failure("is_done", "the event is part of a recording".to_string()))
            }
        }
    }

    fn elapsed_ms(&self, from: Event, to: Event) -> Result<f32, DriverError> {
        let mut state = self.enter(Call::ElapsedMs { from, to })?;
        let mut happened = |event: Event| {
            let state = state.event("elapsed_ms", event.0)?;
            match &state.last {
                Last::Submitted(ticket) if state.timed => ticket.get().copied(),
                _ => None,
            }
            .ok_or_else(|| {
                failure(
                    "elapsed_ms",
                    "both events must be timed ones that have happened".to_string(),
                )
            })
        };
        let (from, to) = (happened(from)?, happened(to)?);
        let sign = if to < from { -1.0 } else { 1.0 };
        Ok(sign * (to.max(from) - to.min(from)).as_secs_f32() * 1e3)
    }

    unsafe fn upload(
        &self,
        stream: Stream,
        dst: u64,
        src: *const c_void,
        bytes: usize,
    ) -> Result<(), DriverError> {
        let mut state = self.enter(Call::Upload { stream, bytes: some("upload", bytes)? })?;
        state.submit("upload", stream.0, Task::Upload { dst, src: src as usize, bytes })
    }

    unsafe fn download(
        &self,
        stream: Stream,
        dst: *mut c_void,
        src: u64,
        bytes: usize,
    ) -> Result<(), DriverError> {
        let mut state = self.enter(Call::Download { stream, bytes: some("download", bytes)? })?;
        state.submit("download", stream.0, Task::Download { dst: dst as usize, src, bytes })
    }

    unsafe fn copy(
        &self,
        stream: Stream,
        dst: u64,
        src: u64,
        bytes: usize,
    ) -> Result<(), DriverError> {
        self.enter(Call::Copy { stream, bytes: some("copy", bytes)? })?.submit(
            "copy",
            stream.0,
            Task::Copy { dst, src, bytes },
        )
    }

    unsafe fn zero(&self, stream: Stream, dst: u64, bytes: usize) -> Result<(), DriverError> {
        self.enter(Call::Zero { stream, bytes: some("zero", bytes)? })?.submit(
            "zero",
            stream.0,
            Task::Zero { dst, bytes },
        )
    }

    fn load(&self, source: &Source) -> Result<Module, DriverError> {
        let known = |state: &State| state.modules.iter().position(|(known, _)| known == source);
        if let Some(index) = known(&*self.enter(Call::Load { source: source.name.to_string() })?) {
            return Ok(Module(index as u64));
        }
        // Other ranks go on while the compiler runs.
        let library = kernel::load(source)?;
        let mut state = self.device.state();
        if let Some(index) = known(&state) {
            return Ok(Module(index as u64));
        }
        state.modules.push((source.clone(), library));
        Ok(Module(state.modules.len() as u64 - 1))
    }

    fn function(&self, module: Module, name: &str) -> Result<Function, DriverError> {
        let mut state = self.enter(Call::Function { kernel: name.to_string() })?;
        let Some((_, library)) = state.modules.get(module.0 as usize) else {
            return Err(failure("function", format!("there is no module {}", module.0)));
        };
        let kernel = library.kernel(name)?;
        state.functions.push(kernel);
        Ok(Function(state.functions.len() as u64 - 1))
    }

    unsafe fn launch(
        &self,
        stream: Stream,
        function: Function,
        grid: Grid,
        args: &[&[u8]],
    ) -> Result<(), DriverError> {
        let mut state = self.device.state();
        let Some(kernel) = state.functions.get(function.0 as usize).cloned() else {
            return Err(failure("launch", format!("there is no function {}", function.0)));
        };
        state.enter(self.number, Call::Launch { stream, kernel: kernel.name.clone(), grid })?;
        let most_shared = self.properties().shared_memory;
        kernel.check(&grid, args, most_shared).map_err(|reason| failure("launch", reason))?;
        state.submit("launch", stream.0, Task::Launch { kernel, grid, args: Arguments::new(args) })
    }

    fn has_matmul(&self, shape: &MatMul) -> Result<bool, DriverError> {
        // As the library on an H100: rows of 16 bytes.
        Ok(shape.gemm.n.is_multiple_of(8))
    }

    unsafe fn matmul(
        &self,
        stream: Stream,
        shape: &MatMul,
        operands: &MatMulOperands,
    ) -> Result<(), DriverError> {
        let (shape, operands) = (*shape, *operands);
        let mut state = self.enter(Call::MatMul { stream, shape })?;
        state.submit("matmul", stream.0, Task::MatMul { shape, operands })
    }

    fn attention(&self) -> Option<&dyn FusedAttention> {
        None
    }

    fn begin_capture(&self, stream: Stream) -> Result<(), DriverError> {
        let mut state = self.enter(Call::BeginCapture { stream })?;
        let capture = state.handle();
        let origin = state.stream("begin_capture", stream.0)?;
        require_live("begin_capture", origin)?;
        origin.capture = Some(capture);
        state.captures.insert(capture, Capture::new(stream.0));
        Ok(())
    }

    fn end_capture(&self, stream: Stream) -> Result<Graph, DriverError> {
        let mut state = self.device.state();
        let entered = state.enter(self.number, Call::EndCapture { stream });
        let capture = state.stream("end_capture", stream.0)?.capture;
        let began_here =
            |capture: &u64| state.captures.get(capture).is_some_and(|c| c.origin == stream.0);
        let recording =
            capture.filter(began_here).and_then(|capture| state.captures.remove(&capture));
        let Some(recording) = recording else {
            return Err(failure("end_capture", "no recording began on this stream".to_string()));
        };
        for joined in recording.streams() {
            if let Some(stream) = state.streams.get_mut(&joined) {
                stream.capture = None;
            }
        }
        // A recording of which nothing comes has ended, too.
        entered?;
        let graph = state.handle();
        state.graphs.insert(graph, Arc::new(recording.end()?));
        Ok(Graph(graph))
    }

    unsafe fn launch_graph(&self, stream: Stream, graph: Graph) -> Result<(), DriverError> {
        let mut state = self.enter(Call::LaunchGraph { stream, graph })?;
        let Some(recorded) = state.graphs.get(&graph.0).cloned() else {
            return Err(failure("launch_graph", format!("there is no graph {}", graph.0)));
        };
        let target = state.stream("launch_graph", stream.0)?;
        require_live("launch_graph", target)?;
        target.queue.push_back(Work::Graph(Replay::new(recorded)));
        state.stir()
    }

    fn free_graph(&self, graph: Graph) -> Result<(), DriverError> {
        let mut state = self.enter(Call::FreeGraph { graph })?;
        let freed = state.graphs.remove(&graph.0);
        freed
            .map(|_| ())
            .ok_or_else(|| failure("free_graph", format!("there is no graph {}", graph.0)))
    }
}

/// Refuses a transfer of no bytes, as a driver may: the address of an empty block belongs to no allocation.
fn some(call: &'static str, bytes: usize) -> Result<usize, DriverError> {
    match bytes {
        0 => Err(failure(call, "of 0 bytes".to_owned())),
        bytes => Ok(bytes),
    }
}

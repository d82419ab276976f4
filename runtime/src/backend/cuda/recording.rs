//! Recorded work of a GPU: graphs of its driver.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::backend::{DeviceFailure, DeviceGraph, Queue};

use super::driver::{DriverError, Graph, Stream};
use super::gpu::{Gpu, done, lock};

/// What one rank records, and what its recordings use beside the buffers of models.
#[derive(Default)]
pub(super) struct Tape {
    is_recording: AtomicBool,
    waits: AtomicU64,
    /// Of workspaces that are kept for recordings.
    retired_bytes: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of the recording that goes on.
    constants: Vec<Pinned>,
    /// Recordings that are there, or under way.
    recordings: usize,
    /// Workspaces that were too small for later work, but not for what was recorded: addresses and bytes.
    retired: Vec<(u64, usize)>,
}

/// Page-locked host memory: its address, and bytes.
#[derive(Debug, Clone, Copy)]
struct Pinned(usize, usize);

impl Tape {
    pub fn is_recording(&self) -> bool {
        self.is_recording.load(Relaxed)
    }

    /// The host reads memory of the device, or waits for it.
    pub fn note_wait(&self) {
        self.waits.fetch_add(1, Relaxed);
    }

    pub fn waits(&self) -> u64 {
        self.waits.load(Relaxed)
    }

    /// A copy of `values` in page-locked memory, which stays as long as what is recorded.
    pub fn constant(&self, gpu: &Gpu, values: &[u8]) -> *const u8 {
        let bytes = values.len().max(1);
        let memory = done(gpu.driver().alloc_pinned(bytes));
        // SAFETY: the memory is new, and has room for the values.
        unsafe { memory.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        lock(&self.state).constants.push(Pinned(memory as usize, bytes));
        memory
    }

    /// Keeps a workspace that recordings may use. Gives whether there are any.
    pub fn retire(&self, address: u64, bytes: usize) -> bool {
        let mut state = lock(&self.state);
        if state.recordings > 0 {
            state.retired.push((address, bytes));
            self.retired_bytes.fetch_add(bytes, Relaxed);
        }
        state.recordings > 0
    }

    /// Bytes of workspaces that are kept for recordings.
    pub fn retired_bytes(&self) -> usize {
        self.retired_bytes.load(Relaxed)
    }
}

/// Begins to record what is submitted to the streams in use, which are done with everything else.
pub(super) fn begin(gpu: &Arc<Gpu>) -> Result<(), String> {
    let record = || -> Result<(), DriverError> {
        let driver = gpu.driver();
        gpu.streams().into_iter().try_for_each(|stream| driver.synchronize(stream))?;
        driver.begin_capture(gpu.stream(Queue::Compute))
    };
    record().map_err(|error| error.to_string())?;
    lock(&gpu.tape.state).recordings += 1;
    gpu.tape.is_recording.store(true, Relaxed);
    // Every other stream takes part, from the beginning.
    let compute = gpu.stream(Queue::Compute);
    let forked = beside_compute(gpu).into_iter().try_for_each(|stream| order(gpu, compute, stream));
    forked.map_err(|error| {
        drop(end(gpu));
        error.to_string()
    })
}

/// Ends the recording.
pub(super) fn end(gpu: &Arc<Gpu>) -> Result<GpuWork, String> {
    let compute = gpu.stream(Queue::Compute);
    let joined = beside_compute(gpu).into_iter().try_for_each(|stream| order(gpu, stream, compute));
    let ended = gpu.driver().end_capture(compute);
    gpu.tape.is_recording.store(false, Relaxed);
    let graph = ended.as_ref().ok().copied();
    let constants = std::mem::take(&mut lock(&gpu.tape.state).constants);
    // It gives everything back, also where nothing came of the recording.
    let work = GpuWork { gpu: Arc::clone(gpu), graph, constants };
    joined.and(ended).map_err(|error| error.to_string())?;
    Ok(work)
}

/// The streams that work is recorded of, but for the one with which it begins and ends.
fn beside_compute(gpu: &Gpu) -> Vec<Stream> {
    gpu.streams_beside(&[Queue::Compute, Queue::Waiting])
}

/// `after` does nothing more before `before` has done what was submitted so far.
fn order(gpu: &Gpu, before: Stream, after: Stream) -> Result<(), DriverError> {
    let driver = gpu.driver();
    let event = driver.new_event(false)?;
    let ordered = driver.record(event, before).and_then(|()| driver.wait(after, event));
    // A driver keeps an event until what waits for it is done.
    ordered.and(driver.free_event(event))
}

/// A graph, and the constants that it copies to the device.
pub(super) struct GpuWork {
    gpu: Arc<Gpu>,
    graph: Option<Graph>,
    constants: Vec<Pinned>,
}

// SAFETY: `launch` asks for what the recorded calls did.
unsafe impl DeviceGraph for GpuWork {
    unsafe fn launch(&self) {
        let compute = self.gpu.stream(Queue::Compute);
        // What other queues are still at came before the recorded work, too.
        for stream in beside_compute(&self.gpu) {
            done(order(&self.gpu, stream, compute));
        }
        if let Some(graph) = self.graph {
            // SAFETY: as the caller promises; the constants are in place.
            let submitted = unsafe { self.gpu.driver().launch_graph(compute, graph) };
            submitted.unwrap_or_else(|error| {
                DeviceFailure(format!("{error} (recorded work; --no-graphs runs without)")).unwind()
            });
        }
    }
}

impl Drop for GpuWork {
    fn drop(&mut self) {
        let driver = self.gpu.driver();
        // Nobody could act on an error here; a device that has failed uses nothing any more.
        let _ = driver.synchronize(self.gpu.stream(Queue::Compute));
        if let Some(graph) = self.graph {
            let _ = driver.free_graph(graph);
        }
        for Pinned(address, bytes) in std::mem::take(&mut self.constants) {
            // SAFETY: allocated in `constant` with these bytes, and the work that reads it is done.
            let _ = unsafe { driver.free_pinned(address as *mut u8, bytes) };
        }
        let mut state = lock(&self.gpu.tape.state);
        state.recordings -= 1;
        if state.recordings == 0 {
            self.gpu.tape.retired_bytes.store(0, Relaxed);
            for (address, bytes) in std::mem::take(&mut state.retired) {
                // SAFETY: `Gpu::workspace` got it with these bytes, and nothing but recordings used it since.
                let _ = unsafe { driver.free(address, bytes) };
            }
        }
    }
}

impl std::fmt::Debug for GpuWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GpuWork({:?})", self.graph)
    }
}

//! CUDA graphs: stream capture of a rank's work, and launches of the captured work.

use std::fmt;
use std::sync::Arc;

use meshwright_backend::{DeviceFailure, DeviceGraph, StreamKind};

use super::capture_state::PinnedBlock;
use super::driver::{DriverCalls, DriverError, Graph, Stream, unwrap_call};
use super::gpu::GpuContext;

/// Begins the capture of the work submitted to all streams in use, after synchronizing them.
pub(super) fn begin_capture(gpu: &Arc<GpuContext>) -> Result<(), String> {
    let begin = || -> Result<(), DriverError> {
        let driver = gpu.driver();
        gpu.streams().into_iter().try_for_each(|stream| driver.synchronize(stream))?;
        driver.begin_capture(gpu.stream(StreamKind::Compute))
    };
    begin().map_err(|error| error.to_string())?;
    gpu.capture.begin_capture();
    // Every other stream joins the capture at its beginning.
    let compute = gpu.stream(StreamKind::Compute);
    let mut forks = side_streams(gpu).into_iter();
    let forked = forks.try_for_each(|stream| wait_for_stream(gpu, stream, compute));
    forked.map_err(|error| {
        drop(end_capture(gpu));
        error.to_string()
    })
}

/// Ends the capture and instantiates the graph.
pub(super) fn end_capture(gpu: &Arc<GpuContext>) -> Result<CudaGraphExec, String> {
    let compute = gpu.stream(StreamKind::Compute);
    let mut joins = side_streams(gpu).into_iter();
    let joined = joins.try_for_each(|stream| wait_for_stream(gpu, compute, stream));
    let ended = gpu.driver().end_capture(compute);
    let (graph, constants) = (ended.as_ref().ok().copied(), gpu.capture.end_capture());
    // Dropping it frees the constants, also if the capture failed.
    let work = CudaGraphExec { gpu: Arc::clone(gpu), graph, constants };
    joined.and(ended).map_err(|error| error.to_string())?;
    Ok(work)
}

/// Returns the captured streams except the compute stream, on which the capture begins and ends.
fn side_streams(gpu: &GpuContext) -> Vec<Stream> {
    gpu.streams_except(&[StreamKind::Compute, StreamKind::Waiting])
}

/// Makes later work on `stream` wait for the work submitted to `awaited` so far.
fn wait_for_stream(gpu: &GpuContext, stream: Stream, awaited: Stream) -> Result<(), DriverError> {
    let driver = gpu.driver();
    let event = driver.new_event(false)?;
    let ordered = driver.record(event, awaited).and_then(|()| driver.wait(stream, event));
    // A driver keeps an event until the streams that wait for it have passed.
    ordered.and(driver.free_event(event))
}

/// An instantiated CUDA graph with the constants that it copies to the device.
pub(super) struct CudaGraphExec {
    gpu: Arc<GpuContext>,
    graph: Option<Graph>,
    constants: Vec<PinnedBlock>,
}

// SAFETY: `submit` repeats the captured calls.
unsafe impl DeviceGraph for CudaGraphExec {
    unsafe fn launch(&self) {
        let compute = self.gpu.stream(StreamKind::Compute);
        // The captured work came after the pending work of all streams.
        for stream in side_streams(&self.gpu) {
            unwrap_call(wait_for_stream(&self.gpu, compute, stream));
        }
        if let Some(graph) = self.graph {
            // SAFETY: as the caller promises; the constants are live.
            let launched = unsafe { self.gpu.driver().launch_graph(compute, graph) };
            launched.unwrap_or_else(|error| {
                let hint = "launch of a CUDA graph; --no-graphs runs without CUDA graphs";
                DeviceFailure(format!("{error} ({hint})")).unwind()
            });
        }
    }
}

impl Drop for CudaGraphExec {
    fn drop(&mut self) {
        let driver = self.gpu.driver();
        // Errors cannot be handled here; a failed device uses nothing any more.
        let _ = driver.synchronize(self.gpu.stream(StreamKind::Compute));
        if let Some(graph) = self.graph {
            let _ = driver.free_graph(graph);
        }
        for PinnedBlock(address, bytes) in std::mem::take(&mut self.constants) {
            // SAFETY: allocated in `capture_constant` with these bytes, and the work that reads it is done.
            let _ = unsafe { driver.free_pinned(address as *mut u8, bytes) };
        }
        for (address, bytes) in self.gpu.capture.drop_graph() {
            // SAFETY: `GpuContext::workspace` allocated these bytes, and only graphs have used them since.
            let _ = unsafe { driver.free(address, bytes) };
        }
    }
}

impl fmt::Debug for CudaGraphExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaGraphExec({:?})", self.graph)
    }
}

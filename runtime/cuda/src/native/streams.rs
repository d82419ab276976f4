//! Streams, events and captured CUDA graphs. The device's context is current on the calling thread.

use cudarc::driver::sys::{
    CUevent, CUevent_flags, CUgraph, CUgraphExec, CUgraphInstantiate_flags, CUresult, CUstream,
    CUstream_flags,
};

use super::context::{DeviceContext, call};
use crate::{DriverError, Event, Graph, Stream};

/// Returns the driver's handle of a stream.
pub fn cu_stream(stream: Stream) -> CUstream {
    stream.0 as CUstream
}

/// Creates a stream, with the highest priority of the device or the lowest.
pub fn new_stream(context: &DeviceContext, high_priority: bool) -> Result<Stream, DriverError> {
    let (mut least, mut greatest) = (0, 0);
    let mut stream: CUstream = std::ptr::null_mut();
    let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
    // SAFETY: the calls write two integers and a handle.
    unsafe {
        call!(context.api, cuCtxGetStreamPriorityRange(&mut least, &mut greatest))?;
        let priority = if high_priority { greatest } else { least };
        call!(context.api, cuStreamCreateWithPriority(&mut stream, flags, priority))?;
    }
    Ok(Stream(stream as u64))
}

/// Creates an event, which records its time if `timed`.
pub fn new_event(context: &DeviceContext, timed: bool) -> Result<Event, DriverError> {
    let flags = if timed {
        CUevent_flags::CU_EVENT_DEFAULT
    } else {
        CUevent_flags::CU_EVENT_DISABLE_TIMING
    };
    let mut event: CUevent = std::ptr::null_mut();
    // SAFETY: writes the handle.
    unsafe { call!(context.api, cuEventCreate(&mut event, flags as u32)) }?;
    Ok(Event(event as u64))
}

/// Returns true if the work before the last record of `event` is complete.
pub fn is_done(context: &DeviceContext, event: Event) -> Result<bool, DriverError> {
    // SAFETY: the event is live.
    let result = unsafe { (context.api.cuEventQuery)(event.0 as CUevent) };
    if result == CUresult::CUDA_ERROR_NOT_READY {
        return Ok(false);
    }
    context.api.check_status("cuEventQuery", result).map(|()| true)
}

/// Returns the milliseconds between two timed events.
pub fn elapsed_ms(context: &DeviceContext, from: Event, to: Event) -> Result<f32, DriverError> {
    let (from, to) = (from.0 as CUevent, to.0 as CUevent);
    let mut milliseconds = 0.0;
    // SAFETY: both are live.
    unsafe { call!(context.api, cuEventElapsedTime_v2(&mut milliseconds, from, to)) }?;
    Ok(milliseconds)
}

/// Ends the capture that began on `stream`, and instantiates the CUDA graph.
pub fn end_capture(context: &DeviceContext, stream: Stream) -> Result<Graph, DriverError> {
    let api = context.api;
    let mut graph: CUgraph = std::ptr::null_mut();
    // SAFETY: writes the handle.
    unsafe { call!(api, cuStreamEndCapture(cu_stream(stream), &mut graph)) }?;
    let mut instantiated: CUgraphExec = std::ptr::null_mut();
    // SAFETY: instantiation copies the captured graph, which is then no longer needed.
    unsafe {
        // Otherwise all kernels would run with the priority of the stream on which the graph is launched.
        let flags =
            CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0.into();
        let result = call!(api, cuGraphInstantiateWithFlags(&mut instantiated, graph, flags));
        call!(api, cuGraphDestroy(graph))?;
        result?;
    }
    Ok(Graph(instantiated as u64))
}

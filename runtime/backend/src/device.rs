//! The interface of accelerator devices: memory, streams, events and graph capture.

use std::any::Any;
use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use super::{DType, ReduceOp};

/// The memory and the streams of an accelerator, as one rank uses them.
///
/// Pointers are device addresses, which the host never dereferences. Methods submit work and return before it is done,
/// except [`download`](Self::download) and [`synchronize`](Self::synchronize). A device that fails unwinds the rank
/// with a [`DeviceFailure`].
///
/// # Safety
/// Callers of the unsafe methods promise that the addresses are of live device memory of sufficient size, and that work
/// on different streams is ordered by [`DeviceEvent`]s if it uses the same memory.
pub trait Device: Send + Sync + Debug {
    /// Allocates `bytes` bytes, at least one; `None` if the device is out of memory.
    fn alloc(&self, bytes: usize) -> Option<NonNull<u8>>;
    /// Returns the device memory, in bytes, that kernels and libraries have allocated for this rank in addition to
    /// [`alloc`](Self::alloc).
    fn overhead_bytes(&self) -> usize {
        0
    }
    /// Sets the cache of freed memory that is emptied when kernels and libraries are out of memory.
    fn set_memory_cache(&self, cache: Weak<dyn MemoryCache>) {
        // A device whose kernels allocate nothing needs no other memory.
        let _ = cache;
    }
    /// Frees memory after every stream of the rank has done the work submitted so far.
    ///
    /// # Safety
    /// `memory` came from [`alloc`](Self::alloc) with these `bytes`.
    unsafe fn free(&self, memory: NonNull<u8>, bytes: usize);

    /// Returns true if the addresses stand for memory of the host, in a dry run.
    fn stands_for_host(&self) -> bool {
        false
    }
    /// Returns true if `bytes` bytes from an address have no memory, and so read as zeros without a
    /// [`download`](Self::download), in a dry run.
    fn reads_as_zeros(&self, address: *const u8, bytes: usize) -> bool {
        let _ = (address, bytes);
        false
    }
    /// Returns the memory behind an address that [stands for memory of the host](Self::stands_for_host), up to the end
    /// of what was allocated with it; `None` if that is more than a dry run may take.
    fn host_memory(&self, address: *const u8) -> Option<NonNull<u8>> {
        let _ = address;
        None
    }

    /// Allocates `bytes` bytes, at least one, of page-locked host memory, which the device copies asynchronously;
    /// `None` if the host is out of memory.
    fn alloc_page_locked(&self, bytes: usize) -> Option<NonNull<u8>>;
    /// Frees page-locked memory, like [`free`](Self::free).
    ///
    /// # Safety
    /// `memory` came from [`alloc_page_locked`](Self::alloc_page_locked) with these `bytes`.
    unsafe fn free_page_locked(&self, memory: NonNull<u8>, bytes: usize);
    /// Copies device memory to page-locked memory, on [`StreamKind::Transfer`].
    ///
    /// # Safety
    /// See [`Device`]; `dst` is not read before the copy is done, and both stay allocated until then.
    unsafe fn copy_out(&self, dst: *mut u8, src: *const u8, bytes: usize);
    /// Copies page-locked memory to the device, on [`StreamKind::Transfer`].
    ///
    /// # Safety
    /// As [`copy_out`](Self::copy_out).
    unsafe fn copy_in(&self, dst: *mut u8, src: *const u8, bytes: usize);

    /// Copies host memory to the device, on [`StreamKind::Compute`]; `src` may be changed on return.
    ///
    /// # Safety
    /// See [`Device`].
    unsafe fn upload(&self, dst: *mut u8, src: &[u8]);
    /// Copies device memory to the host, on [`StreamKind::Compute`], and waits for it.
    ///
    /// # Safety
    /// See [`Device`].
    unsafe fn download(&self, src: *const u8, dst: &mut [u8]);
    /// Sets bytes to zero.
    ///
    /// # Safety
    /// See [`Device`].
    unsafe fn zero(&self, stream_kind: StreamKind, dst: *mut u8, bytes: usize);
    /// Copies device memory; the two do not overlap.
    ///
    /// # Safety
    /// See [`Device`].
    unsafe fn copy(&self, stream_kind: StreamKind, dst: *mut u8, src: *const u8, bytes: usize);
    /// Reduces `len` elements of every source, f32 or bf16, in the order of sources, and writes the result, which is
    /// rounded once. `dst` may be one of the sources.
    ///
    /// # Safety
    /// See [`Device`].
    unsafe fn combine(
        &self,
        stream_kind: StreamKind,
        op: ReduceOp,
        dtype: DType,
        dst: *mut u8,
        srcs: &[*const u8],
        len: usize,
    );

    /// Concatenates `rows` rows: row `i` of `whole` is row `i` of each part, in the order of the parts.
    ///
    /// # Safety
    /// See [`Device`]; no part overlaps `whole`.
    unsafe fn join_rows(
        &self,
        stream_kind: StreamKind,
        rows: usize,
        whole: *mut u8,
        parts: &[RowPart],
    ) {
        for_each_run(rows, parts, |at, part, bytes| {
            // SAFETY: as the caller promises.
            unsafe { self.copy(stream_kind, whole.wrapping_add(at), part as *const u8, bytes) }
        });
    }
    /// Splits `rows` rows: the inverse of [`join_rows`](Self::join_rows).
    ///
    /// # Safety
    /// As [`join_rows`](Self::join_rows).
    unsafe fn split_rows(
        &self,
        stream_kind: StreamKind,
        rows: usize,
        whole: *const u8,
        parts: &[RowPart],
    ) {
        for_each_run(rows, parts, |at, part, bytes| {
            // SAFETY: as the caller promises.
            unsafe { self.copy(stream_kind, part as *mut u8, whole.wrapping_add(at), bytes) }
        });
    }
    /// Reduces equally spaced runs of every source, like [`combine`](Self::combine).
    ///
    /// # Safety
    /// See [`Device`]; `dst` does not alias a source.
    unsafe fn combine_runs(
        &self,
        stream_kind: StreamKind,
        op: ReduceOp,
        dtype: DType,
        dst: *mut u8,
        srcs: &[*const u8],
        runs: &Runs,
    ) {
        for run in 0..runs.count {
            let (from, to) = (run * runs.distance * dtype.bytes(), run * runs.len * dtype.bytes());
            let srcs: Vec<_> = srcs.iter().map(|src| src.wrapping_add(from)).collect();
            // SAFETY: as the caller promises.
            unsafe { self.combine(stream_kind, op, dtype, dst.wrapping_add(to), &srcs, runs.len) };
        }
    }

    /// Records an event after the work submitted to `stream_kind` so far.
    fn mark_stream(&self, stream_kind: StreamKind) -> DeviceEvent;
    /// Makes `stream_kind` wait for `event`, which may belong to another rank on the same device.
    fn wait_for(&self, stream_kind: StreamKind, event: &DeviceEvent);
    /// Records an event with a time stamp, as [`mark_stream`](Self::mark_stream). During a capture, each replay of the
    /// graph records it: its time is that of the latest one, and nothing can wait for it.
    fn record_timed_event(&self, stream_kind: StreamKind) -> DeviceEvent;
    /// Returns the milliseconds between two timed events of this rank that have completed; negative if `to` was first.
    fn elapsed_ms(&self, from: &DeviceEvent, to: &DeviceEvent) -> f32;
    /// Returns true if the event has completed.
    fn is_done(&self, event: &DeviceEvent) -> bool;
    /// Returns the vendor's handle of `stream_kind`, to which other libraries of the vendor submit work.
    fn stream_handle(&self, stream_kind: StreamKind) -> u64;
    /// Blocks the host until the event has completed.
    fn synchronize(&self, event: &DeviceEvent);

    /// Notifies `observer`, while it exists, before memory is freed. Returns false if the device does not support it.
    fn observe_frees(&self, _observer: Weak<dyn FreeObserver>) -> bool {
        false
    }

    /// Begins a graph capture after all work so far is done: work is captured instead of done. During the capture the
    /// host neither reads device memory nor waits for the device, and uses only streams that were used before.
    ///
    /// # Errors
    /// When the device cannot capture, and why.
    fn begin_capture(&self) -> Result<(), String> {
        Err("this device has no graph capture".to_owned())
    }

    /// Ends a graph capture, after the work captured on every stream.
    ///
    /// # Errors
    /// When the capture has failed, and why.
    fn end_capture(&self) -> Result<Box<dyn DeviceGraph>, String> {
        Err("this device has no graph capture".to_owned())
    }

    /// Returns true during a graph capture.
    fn is_capturing(&self) -> bool {
        false
    }

    /// Returns the number of times that the host has read device memory or waited for an event.
    fn waits(&self) -> u64 {
        0
    }
}

/// A captured graph in the device's representation.
///
/// # Safety
/// The caller of [`launch`](Self::launch) promises the same for all memory used in the capture as at its capture.
pub unsafe trait DeviceGraph: Send + Sync + Debug {
    /// Submits the graph, after the work submitted so far to any stream, and before the work submitted to the compute
    /// stream next.
    ///
    /// # Safety
    /// See [`DeviceGraph`].
    unsafe fn launch(&self);
}

/// Interface of the device to the cached memory of its allocator.
pub trait MemoryCache: Send + Sync {
    /// Returns the bytes that can still be allocated within the allocator's limit.
    fn available_bytes(&self) -> usize;
    /// Frees all cached memory that nothing uses.
    fn empty_cache(&self);
}

/// An observer that must release device memory before it is freed.
pub trait FreeObserver: Send + Sync {
    /// Called after all work that uses these bytes is done, and before they are freed.
    fn before_free(&self, address: u64, bytes: usize);
}

/// A column slice of a row-major tensor, stored contiguously.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowPart {
    /// Start address.
    pub address: u64,
    /// Bytes of one row.
    pub bytes: usize,
}

/// Equally spaced runs of elements, which become contiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runs {
    /// Number of runs.
    pub count: usize,
    /// Elements of a run.
    pub len: usize,
    /// Elements between the starts of consecutive runs.
    pub distance: usize,
}

/// Calls `f` for every row of every part that is not empty: with its offset in the whole tensor, its own address, and
/// its size, in bytes.
fn for_each_run(rows: usize, parts: &[RowPart], mut f: impl FnMut(usize, u64, usize)) {
    let width: usize = parts.iter().map(|part| part.bytes).sum();
    let mut start = 0;
    for part in parts.iter().filter(|part| part.bytes > 0) {
        for row in 0..rows {
            f(row * width + start, part.address + (row * part.bytes) as u64, part.bytes);
        }
        start += part.bytes;
    }
}

/// The streams of one rank; the work on each is done in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// The compute stream.
    Compute,
    /// The communication stream of this number; each process group has a number.
    Communication(usize),
    /// The stream of transfers between host and device that overlap with compute.
    Transfer,
    /// A stream without work, for events that the host waits for.
    Waiting,
}

/// An event in the work of a device.
#[derive(Clone)]
pub struct DeviceEvent(pub Arc<dyn Any + Send + Sync>);

impl Debug for DeviceEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DeviceEvent")
    }
}

/// The failure of a device.
///
/// Model code returns tensors, not `Result`s, so a failure also unwinds the rank with this payload;
/// `launch` turns it into an error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("device failure: {0}")]
pub struct DeviceFailure(pub String);

impl DeviceFailure {
    /// Unwinds the rank, without a panic message.
    pub fn unwind(self) -> ! {
        std::panic::resume_unwind(Box::new(self))
    }
}

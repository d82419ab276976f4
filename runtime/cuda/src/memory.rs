//! Device memory of a rank and the order of work on it: the trait [`Device`] for a GPU.

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use meshwright_backend::{
    DType, Device, DeviceEvent, DeviceGraph, FreeObserver, MemoryCache, ReduceOp, RowPart, Runs,
    StreamKind,
};

use super::cuda_graph;
use super::driver::{DriverCalls, DriverError, Event, unwrap_call};
use super::gpu::GpuContext;
use super::ops;
use super::staging::StagingPool;

/// The memory and streams of one rank's GPU.
#[derive(Debug)]
pub struct GpuMemory {
    gpu: Arc<GpuContext>,
    staging: StagingPool,
    observers: FreeObservers,
}

/// Observers to notify before memory is freed.
#[derive(Default)]
struct FreeObservers(Mutex<Vec<Weak<dyn FreeObserver>>>);

impl fmt::Debug for FreeObservers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FreeObservers")
    }
}

impl FreeObservers {
    fn add_observer(&self, observer: Weak<dyn FreeObserver>) {
        let mut observers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        observers.retain(|known| known.strong_count() > 0);
        observers.push(observer);
    }

    fn notify_observers(&self, address: u64, bytes: usize) {
        let observers = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let living = observers.iter().filter_map(Weak::upgrade);
        living.for_each(|observer| observer.before_free(address, bytes));
    }
}

impl GpuMemory {
    /// Creates the memory of the rank that owns the context `gpu`.
    pub fn new(gpu: Arc<GpuContext>) -> GpuMemory {
        GpuMemory {
            staging: StagingPool::new(Arc::clone(&gpu)),
            gpu,
            observers: FreeObservers::default(),
        }
    }

    /// Waits for all submitted work. The caching allocator frees memory only when a rank ends or runs out of memory, so
    /// the cost is small. During capture all other work is already done.
    fn synchronize_all(&self) {
        if self.gpu.capture.is_capturing() {
            return;
        }
        for stream in self.gpu.streams() {
            // A failed device has no pending work that uses memory.
            let _ = self.gpu.driver().synchronize(stream);
        }
    }

    fn record_event(&self, stream_kind: StreamKind, timed: bool) -> DeviceEvent {
        let (driver, stream) = (self.gpu.driver(), self.gpu.stream(stream_kind));
        let event = self.gpu.acquire_event(timed);
        let recorded = RecordedEvent { gpu: Arc::clone(&self.gpu), event, timed };
        unwrap_call(if timed && self.gpu.capture.is_capturing() {
            driver.record_in_graph(event, stream)
        } else {
            driver.record(event, stream)
        });
        DeviceEvent(Arc::new(recorded))
    }

    fn driver_event(&self, event: &DeviceEvent) -> Event {
        match event.0.downcast_ref::<RecordedEvent>() {
            Some(recorded) => recorded.event,
            None => unreachable!("an event of another device type"),
        }
    }
}

/// A recorded event, reused for later records after the last clone of its `DeviceEvent` is dropped.
struct RecordedEvent {
    gpu: Arc<GpuContext>,
    event: Event,
    timed: bool,
}

impl Drop for RecordedEvent {
    fn drop(&mut self) {
        self.gpu.release_event(self.event, self.timed);
    }
}

impl Device for GpuMemory {
    fn alloc(&self, bytes: usize) -> Option<NonNull<u8>> {
        match self.gpu.driver().alloc(bytes) {
            Err(DriverError::OutOfMemory { .. }) => None,
            result => NonNull::new(unwrap_call(result) as *mut u8),
        }
    }

    fn overhead_bytes(&self) -> usize {
        self.gpu.overhead_bytes()
    }

    fn set_memory_cache(&self, cache: Weak<dyn MemoryCache>) {
        self.gpu.set_memory_cache(cache);
    }

    unsafe fn free(&self, memory: NonNull<u8>, bytes: usize) {
        self.synchronize_all();
        self.observers.notify_observers(memory.as_ptr() as u64, bytes);
        // SAFETY: as the caller promises, and no pending work uses the memory.
        let _ = unsafe { self.gpu.driver().free(memory.as_ptr() as u64, bytes) };
    }

    fn alloc_page_locked(&self, bytes: usize) -> Option<NonNull<u8>> {
        match self.gpu.driver().alloc_pinned(bytes) {
            Err(DriverError::OutOfMemory { .. }) => None,
            result => NonNull::new(unwrap_call(result)),
        }
    }

    unsafe fn free_page_locked(&self, memory: NonNull<u8>, bytes: usize) {
        self.synchronize_all();
        // SAFETY: as the caller promises, and no pending work uses the memory.
        let _ = unsafe { self.gpu.driver().free_pinned(memory.as_ptr(), bytes) };
    }

    // Empty transfers are skipped: the address of an empty block belongs to no allocation, and a CUDA graph refuses a
    // memset node of width 0.

    unsafe fn copy_out(&self, dst: *mut u8, src: *const u8, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let stream = self.gpu.stream(StreamKind::Transfer);
        // SAFETY: as the caller promises.
        unwrap_call(unsafe { self.gpu.driver().download(stream, dst.cast(), src as u64, bytes) });
    }

    unsafe fn copy_in(&self, dst: *mut u8, src: *const u8, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let stream = self.gpu.stream(StreamKind::Transfer);
        // SAFETY: as the caller promises.
        unwrap_call(unsafe { self.gpu.driver().upload(stream, dst as u64, src.cast(), bytes) });
    }

    unsafe fn upload(&self, dst: *mut u8, src: &[u8]) {
        if src.is_empty() {
            return;
        }
        // SAFETY: as the caller promises; every upload is on the compute stream.
        unsafe { self.staging.upload(self.gpu.stream(StreamKind::Compute), dst as u64, src) };
    }

    unsafe fn download(&self, src: *const u8, dst: &mut [u8]) {
        if dst.is_empty() {
            return;
        }
        self.gpu.capture.note_wait();
        let (driver, stream) = (self.gpu.driver(), self.gpu.stream(StreamKind::Compute));
        // SAFETY: as the caller promises; the host memory is valid until the stream is synchronized below.
        unwrap_call(unsafe {
            driver.download(stream, dst.as_mut_ptr().cast(), src as u64, dst.len())
        });
        unwrap_call(driver.synchronize(stream));
    }

    unsafe fn zero(&self, stream_kind: StreamKind, dst: *mut u8, bytes: usize) {
        if bytes == 0 {
            return;
        }
        // SAFETY: as the caller promises.
        unwrap_call(unsafe {
            self.gpu.driver().zero(self.gpu.stream(stream_kind), dst as u64, bytes)
        });
    }

    unsafe fn copy(&self, stream_kind: StreamKind, dst: *mut u8, src: *const u8, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let stream = self.gpu.stream(stream_kind);
        // SAFETY: as the caller promises.
        unwrap_call(unsafe { self.gpu.driver().copy(stream, dst as u64, src as u64, bytes) });
    }

    unsafe fn combine(
        &self,
        stream_kind: StreamKind,
        op: ReduceOp,
        dtype: DType,
        dst: *mut u8,
        srcs: &[*const u8],
        len: usize,
    ) {
        // SAFETY: as the caller promises.
        unsafe { ops::combine::combine(&self.gpu, stream_kind, op, dtype, dst, srcs, len) };
    }

    unsafe fn join_rows(
        &self,
        stream_kind: StreamKind,
        rows: usize,
        whole: *mut u8,
        parts: &[RowPart],
    ) {
        // SAFETY: as the caller promises.
        unsafe { ops::row_parts::join_rows(&self.gpu, stream_kind, rows, whole, parts) };
    }

    unsafe fn split_rows(
        &self,
        stream_kind: StreamKind,
        rows: usize,
        whole: *const u8,
        parts: &[RowPart],
    ) {
        // SAFETY: as the caller promises.
        unsafe { ops::row_parts::split_rows(&self.gpu, stream_kind, rows, whole, parts) };
    }

    unsafe fn combine_runs(
        &self,
        stream_kind: StreamKind,
        op: ReduceOp,
        dtype: DType,
        dst: *mut u8,
        srcs: &[*const u8],
        runs: &Runs,
    ) {
        // SAFETY: as the caller promises.
        unsafe { ops::combine::combine_runs(&self.gpu, stream_kind, op, dtype, dst, srcs, runs) };
    }

    fn mark_stream(&self, stream_kind: StreamKind) -> DeviceEvent {
        self.record_event(stream_kind, false)
    }

    fn record_timed_event(&self, stream_kind: StreamKind) -> DeviceEvent {
        self.record_event(stream_kind, true)
    }

    fn elapsed_ms(&self, from: &DeviceEvent, to: &DeviceEvent) -> f32 {
        unwrap_call(self.gpu.driver().elapsed_ms(self.driver_event(from), self.driver_event(to)))
    }

    fn wait_for(&self, stream_kind: StreamKind, event: &DeviceEvent) {
        unwrap_call(self.gpu.driver().wait(self.gpu.stream(stream_kind), self.driver_event(event)));
    }

    fn is_done(&self, event: &DeviceEvent) -> bool {
        unwrap_call(self.gpu.driver().is_done(self.driver_event(event)))
    }

    fn stream_handle(&self, stream_kind: StreamKind) -> u64 {
        self.gpu.stream(stream_kind).0
    }

    fn observe_frees(&self, observer: Weak<dyn FreeObserver>) -> bool {
        self.observers.add_observer(observer);
        true
    }

    fn synchronize(&self, event: &DeviceEvent) {
        self.gpu.capture.note_wait();
        let driver = self.gpu.driver();
        let stream = self.gpu.stream(StreamKind::Waiting);
        unwrap_call(driver.wait(stream, self.driver_event(event)));
        unwrap_call(driver.synchronize(stream));
    }
    fn begin_capture(&self) -> Result<(), String> {
        cuda_graph::begin_capture(&self.gpu)
    }

    fn end_capture(&self) -> Result<Box<dyn DeviceGraph>, String> {
        let work = cuda_graph::end_capture(&self.gpu)?;
        Ok(Box::new(work))
    }

    fn is_capturing(&self) -> bool {
        self.gpu.capture.is_capturing()
    }

    fn waits(&self) -> u64 {
        self.gpu.capture.host_waits()
    }
}

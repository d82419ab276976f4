//! A device whose work is observed.

use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use crate::{
    DType, Device, DeviceEvent, DeviceGraph, FreeObserver, MemoryCache, ReduceOp, RowPart, Runs,
    StreamKind,
};

use super::bytes::dim;
use super::kernel::Launch;
use super::{Kernel, KernelObserver, KernelOp};

/// A device that reports the work of its compute and transfer streams to an observer. Work of communication streams
/// belongs to collectives.
pub(super) struct ObservedDevice {
    device: Arc<dyn Device>,
    observer: Arc<dyn KernelObserver>,
}

impl ObservedDevice {
    /// Observes the work of `device`.
    pub fn new(device: Arc<dyn Device>, observer: Arc<dyn KernelObserver>) -> ObservedDevice {
        ObservedDevice { device, observer }
    }

    fn report(&self, op: KernelOp, dtype: DType, [read, written]: [usize; 2]) -> Launch<'_> {
        let dims = [dim(read.max(written) / dtype.bytes()), 0, 0, 0];
        let [read, written] = [read, written].map(|bytes| bytes as u64);
        let launch = Launch::begin(&*self.observer);
        self.observer.kernel_launched(&Kernel { op, dims, dtype, flops: 0, read, written });
        launch
    }

    fn report_on(
        &self,
        stream: StreamKind,
        op: KernelOp,
        dtype: DType,
        bytes: [usize; 2],
    ) -> Option<Launch<'_>> {
        (stream == StreamKind::Compute).then(|| self.report(op, dtype, bytes))
    }
}

impl std::fmt::Debug for ObservedDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.device.fmt(f)
    }
}

// SAFETY: every method has the contract of the one of the same name that it calls.
impl Device for ObservedDevice {
    fn alloc(&self, bytes: usize) -> Option<NonNull<u8>> {
        self.device.alloc(bytes)
    }

    fn overhead_bytes(&self) -> usize {
        self.device.overhead_bytes()
    }

    fn set_memory_cache(&self, cache: Weak<dyn MemoryCache>) {
        self.device.set_memory_cache(cache);
    }

    unsafe fn free(&self, memory: NonNull<u8>, bytes: usize) {
        // SAFETY: as the caller promises.
        unsafe { self.device.free(memory, bytes) }
    }

    fn stands_for_host(&self) -> bool {
        self.device.stands_for_host()
    }

    fn reads_as_zeros(&self, address: *const u8, bytes: usize) -> bool {
        let is_left_out = self.device.reads_as_zeros(address, bytes);
        if is_left_out && !self.stands_for_host() {
            drop(self.report(KernelOp::Download, DType::F32, [bytes, 0]));
        }
        is_left_out
    }

    fn host_memory(&self, address: *const u8) -> Option<NonNull<u8>> {
        self.device.host_memory(address)
    }

    fn alloc_page_locked(&self, bytes: usize) -> Option<NonNull<u8>> {
        self.device.alloc_page_locked(bytes)
    }

    unsafe fn free_page_locked(&self, memory: NonNull<u8>, bytes: usize) {
        // SAFETY: as the caller promises.
        unsafe { self.device.free_page_locked(memory, bytes) }
    }

    unsafe fn copy_out(&self, dst: *mut u8, src: *const u8, bytes: usize) {
        let _launch = self.report(KernelOp::CopyOut, DType::F32, [bytes, 0]);
        // SAFETY: as the caller promises.
        unsafe { self.device.copy_out(dst, src, bytes) }
    }

    unsafe fn copy_in(&self, dst: *mut u8, src: *const u8, bytes: usize) {
        let _launch = self.report(KernelOp::CopyIn, DType::F32, [0, bytes]);
        // SAFETY: as the caller promises.
        unsafe { self.device.copy_in(dst, src, bytes) }
    }

    unsafe fn upload(&self, dst: *mut u8, src: &[u8]) {
        let _launch = self.report(KernelOp::Upload, DType::F32, [0, src.len()]);
        // SAFETY: as the caller promises.
        unsafe { self.device.upload(dst, src) }
    }

    unsafe fn download(&self, src: *const u8, dst: &mut [u8]) {
        let _launch = self.report(KernelOp::Download, DType::F32, [dst.len(), 0]);
        // SAFETY: as the caller promises.
        unsafe { self.device.download(src, dst) }
    }

    unsafe fn zero(&self, stream_kind: StreamKind, dst: *mut u8, bytes: usize) {
        let _launch = self.report_on(stream_kind, KernelOp::Zero, DType::F32, [0, bytes]);
        // SAFETY: as the caller promises.
        unsafe { self.device.zero(stream_kind, dst, bytes) }
    }

    unsafe fn copy(&self, stream_kind: StreamKind, dst: *mut u8, src: *const u8, bytes: usize) {
        let _launch = self.report_on(stream_kind, KernelOp::Copy, DType::F32, [bytes; 2]);
        // SAFETY: as the caller promises.
        unsafe { self.device.copy(stream_kind, dst, src, bytes) }
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
        let bytes = len * dtype.bytes();
        let _launch = self.report_on(
            stream_kind,
            KernelOp::CombineKernel,
            dtype,
            [srcs.len() * bytes, bytes],
        );
        // SAFETY: as the caller promises.
        unsafe { self.device.combine(stream_kind, op, dtype, dst, srcs, len) }
    }

    unsafe fn join_rows(
        &self,
        stream_kind: StreamKind,
        rows: usize,
        whole: *mut u8,
        parts: &[RowPart],
    ) {
        let _launch = self.report_on(
            stream_kind,
            KernelOp::Copy,
            DType::F32,
            [bytes_of_rows(rows, parts); 2],
        );
        // SAFETY: as the caller promises.
        unsafe { self.device.join_rows(stream_kind, rows, whole, parts) }
    }

    unsafe fn split_rows(
        &self,
        stream_kind: StreamKind,
        rows: usize,
        whole: *const u8,
        parts: &[RowPart],
    ) {
        let _launch = self.report_on(
            stream_kind,
            KernelOp::Copy,
            DType::F32,
            [bytes_of_rows(rows, parts); 2],
        );
        // SAFETY: as the caller promises.
        unsafe { self.device.split_rows(stream_kind, rows, whole, parts) }
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
        let bytes = runs.count * runs.len * dtype.bytes();
        let _launch = self.report_on(
            stream_kind,
            KernelOp::CombineKernel,
            dtype,
            [srcs.len() * bytes, bytes],
        );
        // SAFETY: as the caller promises.
        unsafe { self.device.combine_runs(stream_kind, op, dtype, dst, srcs, runs) }
    }

    fn mark_stream(&self, stream_kind: StreamKind) -> DeviceEvent {
        self.device.mark_stream(stream_kind)
    }

    fn wait_for(&self, stream_kind: StreamKind, event: &DeviceEvent) {
        self.device.wait_for(stream_kind, event);
    }

    fn record_timed_event(&self, stream_kind: StreamKind) -> DeviceEvent {
        self.device.record_timed_event(stream_kind)
    }

    fn elapsed_ms(&self, from: &DeviceEvent, to: &DeviceEvent) -> f32 {
        self.device.elapsed_ms(from, to)
    }

    fn is_done(&self, event: &DeviceEvent) -> bool {
        self.device.is_done(event)
    }

    fn stream_handle(&self, stream_kind: StreamKind) -> u64 {
        self.device.stream_handle(stream_kind)
    }

    fn synchronize(&self, event: &DeviceEvent) {
        self.device.synchronize(event);
    }

    fn observe_frees(&self, observer: Weak<dyn FreeObserver>) -> bool {
        self.device.observe_frees(observer)
    }

    fn begin_capture(&self) -> Result<(), String> {
        self.device.begin_capture()
    }

    fn end_capture(&self) -> Result<Box<dyn DeviceGraph>, String> {
        self.device.end_capture()
    }

    fn is_capturing(&self) -> bool {
        self.device.is_capturing()
    }

    fn waits(&self) -> u64 {
        self.device.waits()
    }
}

fn bytes_of_rows(rows: usize, parts: &[RowPart]) -> usize {
    rows * parts.iter().map(|part| part.bytes).sum::<usize>()
}

//! A device that works synchronously.

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use meshwright::backend::{DType, Device, DeviceEvent, FreeObserver, ReduceOp, StreamKind};

use super::hub::combined;

/// Works synchronously; its events never complete if it is stuck.
#[derive(Default)]
pub struct Prompt {
    pub is_stuck: AtomicBool,
    observers: Mutex<Vec<Weak<dyn FreeObserver>>>,
}

impl fmt::Debug for Prompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prompt")
    }
}

impl Device for Prompt {
    fn alloc(&self, bytes: usize) -> Option<NonNull<u8>> {
        NonNull::new(
            Box::leak(vec![0u64; bytes.div_ceil(8)].into_boxed_slice()).as_mut_ptr().cast(),
        )
    }

    unsafe fn free(&self, memory: NonNull<u8>, bytes: usize) {
        for observer in self.observers.lock().unwrap().iter().filter_map(Weak::upgrade) {
            observer.before_free(memory.as_ptr() as u64, bytes);
        }
        let words =
            std::ptr::slice_from_raw_parts_mut(memory.as_ptr().cast::<u64>(), bytes.div_ceil(8));
        drop(unsafe { Box::from_raw(words) });
    }

    fn alloc_page_locked(&self, bytes: usize) -> Option<NonNull<u8>> {
        self.alloc(bytes)
    }

    unsafe fn free_page_locked(&self, memory: NonNull<u8>, bytes: usize) {
        unsafe { self.free(memory, bytes) }
    }

    unsafe fn copy_out(&self, dst: *mut u8, src: *const u8, bytes: usize) {
        unsafe { dst.copy_from_nonoverlapping(src, bytes) };
    }

    unsafe fn copy_in(&self, dst: *mut u8, src: *const u8, bytes: usize) {
        unsafe { dst.copy_from_nonoverlapping(src, bytes) };
    }

    unsafe fn upload(&self, dst: *mut u8, src: &[u8]) {
        unsafe { dst.copy_from_nonoverlapping(src.as_ptr(), src.len()) };
    }

    unsafe fn download(&self, src: *const u8, dst: &mut [u8]) {
        unsafe { dst.as_mut_ptr().copy_from_nonoverlapping(src, dst.len()) };
    }

    unsafe fn zero(&self, _: StreamKind, dst: *mut u8, bytes: usize) {
        unsafe { dst.write_bytes(0, bytes) };
    }

    unsafe fn copy(&self, _: StreamKind, dst: *mut u8, src: *const u8, bytes: usize) {
        unsafe { dst.copy_from_nonoverlapping(src, bytes) };
    }

    unsafe fn combine(
        &self,
        _: StreamKind,
        op: ReduceOp,
        dtype: DType,
        dst: *mut u8,
        srcs: &[*const u8],
        len: usize,
    ) {
        let bytes = |src: &*const u8| {
            // SAFETY: as the caller guarantees.
            unsafe { std::slice::from_raw_parts(*src, len * dtype.bytes()) }.to_vec()
        };
        let sources: Vec<Vec<u8>> = srcs.iter().map(bytes).collect();
        let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
        let result = combined(dtype, op, &sources);
        // SAFETY: as the caller guarantees.
        unsafe { dst.copy_from_nonoverlapping(result.as_ptr(), result.len()) };
    }

    fn observe_frees(&self, observer: Weak<dyn FreeObserver>) -> bool {
        self.observers.lock().unwrap().push(observer);
        true
    }

    fn mark_stream(&self, _: StreamKind) -> DeviceEvent {
        DeviceEvent(Arc::new(()))
    }

    fn record_timed_event(&self, queue: StreamKind) -> DeviceEvent {
        self.mark_stream(queue)
    }

    fn elapsed_ms(&self, _: &DeviceEvent, _: &DeviceEvent) -> f32 {
        0.0
    }

    fn wait_for(&self, _: StreamKind, _: &DeviceEvent) {}

    fn is_done(&self, _: &DeviceEvent) -> bool {
        !self.is_stuck.load(Ordering::Relaxed)
    }

    fn stream_handle(&self, _: StreamKind) -> u64 {
        7
    }

    fn synchronize(&self, _: &DeviceEvent) {}
}

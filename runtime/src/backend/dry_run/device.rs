//! A device for dry runs: addresses without memory, and streams without work.

use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::backend::block::ALIGN;
use crate::backend::{DType, Device, DeviceEvent, ReduceOp, StreamKind};

/// Device of a dry run: returns unique addresses, which are never accessed.
#[derive(Debug, Default)]
pub(super) struct DryRunDevice {
    /// Bytes given out so far.
    used: AtomicUsize,
}

fn no_event() -> DeviceEvent {
    DeviceEvent(Arc::new(()))
}

impl Device for DryRunDevice {
    fn alloc(&self, bytes: usize) -> Option<NonNull<u8>> {
        let taken = bytes.checked_next_multiple_of(ALIGN)?;
        let end = |used: usize| used.checked_add(taken).filter(|end| *end < isize::MAX as usize);
        let start = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end).ok()?;
        Some(NonNull::without_provenance(NonZeroUsize::new(start + ALIGN)?))
    }

    unsafe fn free(&self, _: NonNull<u8>, _: usize) {}

    /// Returns `None`: the allocator of a dry run reserves addresses of the host instead.
    fn alloc_page_locked(&self, _: usize) -> Option<NonNull<u8>> {
        None
    }

    unsafe fn free_page_locked(&self, _: NonNull<u8>, _: usize) {}
    unsafe fn copy_out(&self, _: &mut [u8], _: *const u8) {}
    unsafe fn copy_in(&self, _: *mut u8, _: &[u8]) {}
    unsafe fn upload(&self, _: *mut u8, _: &[u8]) {}

    /// Writes zeros.
    unsafe fn download(&self, _: *const u8, dst: &mut [u8]) {
        dst.fill(0);
    }

    unsafe fn zero(&self, _: StreamKind, _: *mut u8, _: usize) {}
    unsafe fn copy(&self, _: StreamKind, _: *mut u8, _: *const u8, _: usize) {}

    unsafe fn combine(
        &self,
        _: StreamKind,
        _: ReduceOp,
        _: DType,
        _: *mut u8,
        _: &[*const u8],
        _: usize,
    ) {
    }

    fn mark_stream(&self, _: StreamKind) -> DeviceEvent {
        no_event()
    }

    fn wait_for(&self, _: StreamKind, _: &DeviceEvent) {}

    fn record_timed_event(&self, _: StreamKind) -> DeviceEvent {
        no_event()
    }

    fn elapsed_ms(&self, _: &DeviceEvent, _: &DeviceEvent) -> f32 {
        0.0
    }

    fn is_done(&self, _: &DeviceEvent) -> bool {
        true
    }

    fn stream_handle(&self, _: StreamKind) -> u64 {
        0
    }

    fn synchronize(&self, _: &DeviceEvent) {}
}

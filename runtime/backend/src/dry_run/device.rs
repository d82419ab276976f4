//! Memory for dry runs: addresses of a device or of the host without memory, and streams without work.

use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::block::ALIGN;
use crate::{DType, Device, DeviceEvent, ReduceOp, StreamKind};

use super::touched_memory::TouchedMemory;

/// Memory of a dry run: returns unique addresses. Addresses of a device are never accessed; addresses that stand for
/// memory of the host get memory when code of a user reads or writes them as a slice.
#[derive(Debug, Default)]
pub(crate) struct DryRunDevice {
    /// Bytes given out so far.
    used: AtomicUsize,
    /// `None` for a device.
    host: Option<TouchedMemory>,
}

impl DryRunDevice {
    /// Creates addresses that stand for memory of the host.
    pub fn host() -> DryRunDevice {
        DryRunDevice { host: Some(TouchedMemory::default()), ..DryRunDevice::default() }
    }
}

fn no_event() -> DeviceEvent {
    DeviceEvent(Arc::new(()))
}

impl Device for DryRunDevice {
    fn alloc(&self, bytes: usize) -> Option<NonNull<u8>> {
        let taken = bytes.checked_next_multiple_of(ALIGN)?;
        let end = |used: usize| used.checked_add(taken).filter(|end| *end < isize::MAX as usize);
        let start = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end).ok()?;
        let address = NonZeroUsize::new(start + ALIGN)?;
        if let Some(host) = &self.host {
            host.add_block(address.get(), bytes);
        }
        Some(NonNull::without_provenance(address))
    }

    unsafe fn free(&self, memory: NonNull<u8>, _: usize) {
        if let Some(host) = &self.host {
            host.remove_block(memory.as_ptr().addr());
        }
    }

    fn stands_for_host(&self) -> bool {
        self.host.is_some()
    }

    fn reads_as_zeros(&self, address: *const u8, _: usize) -> bool {
        self.host.as_ref().is_none_or(|host| host.touched(address.addr()).is_none())
    }

    fn host_memory(&self, address: *const u8) -> Option<NonNull<u8>> {
        self.host.as_ref()?.touch(address.addr())
    }

    /// Returns `None`: the allocator of a dry run has addresses that stand for such memory.
    fn alloc_page_locked(&self, _: usize) -> Option<NonNull<u8>> {
        None
    }

    unsafe fn free_page_locked(&self, _: NonNull<u8>, _: usize) {}
    unsafe fn copy_out(&self, _: *mut u8, _: *const u8, _: usize) {}
    unsafe fn copy_in(&self, _: *mut u8, _: *const u8, _: usize) {}

    /// Writes to memory that was touched; does nothing otherwise.
    unsafe fn upload(&self, dst: *mut u8, src: &[u8]) {
        if let Some(memory) = self.host.as_ref().and_then(|host| host.touched(dst.addr())) {
            // SAFETY: the caller writes into one block, exclusively, and all of the block was touched.
            unsafe { memory.as_ptr().copy_from_nonoverlapping(src.as_ptr(), src.len()) };
        }
    }

    /// Reads memory that was touched; writes zeros otherwise.
    unsafe fn download(&self, src: *const u8, dst: &mut [u8]) {
        match self.host.as_ref().and_then(|host| host.touched(src.addr())) {
            // SAFETY: as in `upload`.
            Some(memory) => unsafe {
                memory.as_ptr().copy_to_nonoverlapping(dst.as_mut_ptr(), dst.len());
            },
            None => dst.fill(0),
        }
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

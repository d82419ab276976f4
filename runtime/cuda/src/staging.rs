//! Page-locked staging buffers for asynchronous uploads.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::driver::{DriverCalls, Event, Stream, unwrap_call};
use super::gpu::{GpuContext, lock_unpoisoned};

/// Maximum size of pending uploads, in bytes, before an upload waits for earlier ones.
const PENDING_LIMIT: usize = 64 << 20;

/// Size of the smallest buffer, in bytes; larger sizes are powers of two.
const MIN_BUFFER_BYTES: usize = 4 << 10;

/// Staging buffers of page-locked memory, reused after the device has read them.
#[derive(Debug)]
pub struct StagingPool {
    gpu: Arc<GpuContext>,
    buffers: Mutex<StagingBuffers>,
}

#[derive(Debug, Default)]
struct StagingBuffers {
    free: Vec<StagingBuffer>,
    /// Buffers in use, in the order of the uploads, which all use one stream.
    pending: VecDeque<(StagingBuffer, Event)>,
    pending_bytes: usize,
}

#[derive(Debug)]
struct StagingBuffer {
    memory: *mut u8,
    bytes: usize,
}

// SAFETY: a buffer owns its memory.
unsafe impl Send for StagingBuffer {}

impl StagingPool {
    /// Creates an empty pool.
    pub fn new(gpu: Arc<GpuContext>) -> StagingPool {
        StagingPool { gpu, buffers: Mutex::default() }
    }

    /// Copies `src` to a staging buffer and uploads it asynchronously.
    ///
    /// # Safety
    /// `dst` is large enough, and no other work uses it before `stream` has finished the upload. Every call uses the
    /// same stream.
    pub unsafe fn upload(&self, stream: Stream, dst: u64, src: &[u8]) {
        let driver = self.gpu.driver();
        if self.gpu.capture.is_capturing() {
            let constant = self.gpu.capture.capture_constant(self.gpu.driver(), src);
            // SAFETY: the constant lives as long as the CUDA graph that reads it.
            return unwrap_call(unsafe { driver.upload(stream, dst, constant.cast(), src.len()) });
        }
        let mut buffers = lock_unpoisoned(&self.buffers);
        if buffers.pending_bytes + src.len() > PENDING_LIMIT {
            unwrap_call(driver.synchronize(stream));
        }
        self.reclaim_buffers(&mut buffers);
        let buffer = self.take_buffer(&mut buffers, src.len());
        // SAFETY: the buffer is large enough for `src`, used by nothing else, and kept until its event completes.
        unsafe {
            buffer.memory.copy_from_nonoverlapping(src.as_ptr(), src.len());
            unwrap_call(driver.upload(stream, dst, buffer.memory.cast(), src.len()));
        }
        let event = self.gpu.acquire_event(false);
        unwrap_call(driver.record(event, stream));
        buffers.pending_bytes += buffer.bytes;
        buffers.pending.push_back((buffer, event));
    }

    /// Returns the buffers that the device has read to the pool.
    fn reclaim_buffers(&self, buffers: &mut StagingBuffers) {
        let driver = self.gpu.driver();
        while let Some((_, event)) = buffers.pending.front()
            && unwrap_call(driver.is_done(*event))
        {
            let Some((buffer, event)) = buffers.pending.pop_front() else { return };
            self.gpu.release_event(event, false);
            buffers.pending_bytes -= buffer.bytes;
            buffers.free.push(buffer);
        }
    }

    fn take_buffer(&self, buffers: &mut StagingBuffers, bytes: usize) -> StagingBuffer {
        let bytes = bytes.next_power_of_two().max(MIN_BUFFER_BYTES);
        match buffers.free.iter().position(|buffer| buffer.bytes == bytes) {
            Some(index) => buffers.free.swap_remove(index),
            None => {
                StagingBuffer { memory: unwrap_call(self.gpu.driver().alloc_pinned(bytes)), bytes }
            }
        }
    }
}

impl Drop for StagingPool {
    fn drop(&mut self) {
        let driver = self.gpu.driver();
        // Errors cannot be handled here; a failed device reads nothing more.
        for stream in self.gpu.streams() {
            let _ = driver.synchronize(stream);
        }
        let buffers = std::mem::take(&mut *lock_unpoisoned(&self.buffers));
        let pending = buffers.pending.into_iter().map(|(buffer, event)| {
            self.gpu.release_event(event, false);
            buffer
        });
        for buffer in pending.chain(buffers.free) {
            // SAFETY: allocated in `take_buffer` with this size, and no longer read.
            let _ = unsafe { driver.free_pinned(buffer.memory, buffer.bytes) };
        }
    }
}

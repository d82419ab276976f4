//! Page-locked staging buffers for asynchronous uploads.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::driver::{Event, Stream};
use super::gpu::{Gpu, done, lock};

/// Maximum size of pending uploads, in bytes, before an upload waits for earlier ones.
const LIMIT: usize = 64 << 20;

/// Size of the smallest buffer, in bytes; larger sizes are powers of two.
const SMALLEST: usize = 4 << 10;

/// Staging buffers of page-locked memory, reused after the device has read them.
#[derive(Debug)]
pub struct Staging {
    gpu: Arc<Gpu>,
    blocks: Mutex<Blocks>,
}

#[derive(Debug, Default)]
struct Blocks {
    free: Vec<Block>,
    /// In the order of the uploads, which all use one stream.
    under_way: VecDeque<(Block, Event)>,
    bytes_under_way: usize,
}

#[derive(Debug)]
struct Block {
    memory: *mut u8,
    bytes: usize,
}

// SAFETY: a buffer owns its memory.
unsafe impl Send for Block {}

impl Staging {
    /// Creates an empty pool.
    pub fn new(gpu: Arc<Gpu>) -> Staging {
        Staging { gpu, blocks: Mutex::default() }
    }

    /// Copies `src` to a staging buffer and uploads it asynchronously.
    ///
    /// # Safety
    /// `dst` is large enough, and no other work uses it before `stream` has finished the upload. Every call uses the
    /// same stream.
    pub unsafe fn upload(&self, stream: Stream, dst: u64, src: &[u8]) {
        let driver = self.gpu.driver();
        if self.gpu.tape.is_recording() {
            let constant = self.gpu.tape.constant(&self.gpu, src);
            // SAFETY: the constant lives as long as the CUDA graph that reads it.
            return done(unsafe { driver.upload(stream, dst, constant.cast(), src.len()) });
        }
        let mut blocks = lock(&self.blocks);
        if blocks.bytes_under_way + src.len() > LIMIT {
            done(driver.synchronize(stream));
        }
        self.collect(&mut blocks);
        let block = self.take(&mut blocks, src.len());
        // SAFETY: the buffer is large enough for `src`, used by nothing else, and kept until its event completes.
        unsafe {
            block.memory.copy_from_nonoverlapping(src.as_ptr(), src.len());
            done(driver.upload(stream, dst, block.memory.cast(), src.len()));
        }
        let event = self.gpu.take_event(false);
        done(driver.record(event, stream));
        blocks.bytes_under_way += block.bytes;
        blocks.under_way.push_back((block, event));
    }

    /// Returns the buffers that the device has read to the pool.
    fn collect(&self, blocks: &mut Blocks) {
        let driver = self.gpu.driver();
        while let Some((_, event)) = blocks.under_way.front()
            && done(driver.is_done(*event))
        {
            let Some((block, event)) = blocks.under_way.pop_front() else { return };
            self.gpu.put_event(event, false);
            blocks.bytes_under_way -= block.bytes;
            blocks.free.push(block);
        }
    }

    fn take(&self, blocks: &mut Blocks, bytes: usize) -> Block {
        let bytes = bytes.next_power_of_two().max(SMALLEST);
        match blocks.free.iter().position(|block| block.bytes == bytes) {
            Some(index) => blocks.free.swap_remove(index),
            None => Block { memory: done(self.gpu.driver().alloc_pinned(bytes)), bytes },
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let driver = self.gpu.driver();
        // Errors cannot be handled here; a failed device reads nothing more.
        for stream in self.gpu.streams() {
            let _ = driver.synchronize(stream);
        }
        let blocks = std::mem::take(&mut *lock(&self.blocks));
        let under_way = blocks.under_way.into_iter().map(|(block, event)| {
            self.gpu.put_event(event, false);
            block
        });
        for block in under_way.chain(blocks.free) {
            // SAFETY: allocated in `take_buffer` with this size, and no longer read.
            let _ = unsafe { driver.free_pinned(block.memory, block.bytes) };
        }
    }
}

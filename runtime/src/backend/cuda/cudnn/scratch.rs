//! Scratch memory of attention calls.

use std::sync::Arc;

use crate::backend::cuda::{DriverError, Stream};

use super::host::Host;

/// Granularity of scratch sizes, so that similar sequence lengths share memory.
const GRAIN: usize = 2 << 20;

/// Scratch memory of one stream, shared by all calls on it because they are executed in order.
#[derive(Debug)]
pub(super) struct Scratch {
    host: Arc<dyn Host>,
    stream: Stream,
    /// The last block is in use. Earlier ones were too small; CUDA graphs and pending calls may still use them.
    blocks: Vec<Block>,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    address: u64,
    bytes: usize,
}

impl Scratch {
    pub fn new(host: Arc<dyn Host>, stream: Stream) -> Scratch {
        Scratch { host, stream, blocks: Vec::new() }
    }

    /// Returns the address of at least `bytes` bytes, aligned to 256 bytes.
    pub fn at_least(&mut self, bytes: usize) -> Result<u64, DriverError> {
        if let Some(last) = self.blocks.last()
            && last.bytes >= bytes
        {
            return Ok(last.address);
        }
        let bytes = bytes.next_multiple_of(GRAIN);
        let address = self.host.alloc(self.stream, bytes)?;
        self.blocks.push(Block { address, bytes });
        Ok(address)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for block in &self.blocks {
            // SAFETY: allocated above with these bytes and freed once; `Host::free` waits for pending work. Errors
            // cannot be handled here.
            let _ = unsafe { self.host.free(self.stream, block.address, block.bytes) };
        }
    }
}

/// Divides a block of memory into parts that are aligned to 256 bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Division {
    /// Total size of all parts so far, in bytes.
    pub total: usize,
}

impl Division {
    /// Returns the offset of the next part.
    pub fn part(&mut self, bytes: usize) -> usize {
        let start = self.total;
        self.total += bytes.next_multiple_of(256);
        start
    }
}

//! Device memory that lasts no longer than one call.

use std::sync::Arc;

use crate::backend::cuda::{DriverError, Stream};

use super::host::Host;

/// Sizes are rounded up to multiples of this, so that lengths that differ by little share memory.
const GRAIN: usize = 2 << 20;

/// Scratch of one stream: calls on a stream follow one another, so all of them use the same.
#[derive(Debug)]
pub(super) struct Scratch {
    host: Arc<dyn Host>,
    stream: Stream,
    /// The last is in use. Earlier ones were too small; recorded graphs and calls not yet done may still use them.
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

    /// The address of at least `bytes` bytes, aligned to 256.
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
            // SAFETY: allocated above with these bytes, and given back once; `Host::free` waits for what uses it. Nobody
            // could act on an error here.
            let _ = unsafe { self.host.free(self.stream, block.address, block.bytes) };
        }
    }
}

/// How one block of memory is divided among parts, each at a multiple of 256 bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Division {
    /// Bytes of all parts so far.
    pub total: usize,
}

impl Division {
    /// Where the next part begins.
    pub fn part(&mut self, bytes: usize) -> usize {
        let start = self.total;
        self.total += bytes.next_multiple_of(256);
        start
    }
}

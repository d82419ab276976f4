//! Memory that communicators know.
//!
//! The library copies what it sends over a network into buffers of its own, unless it knows the memory. A training step uses
//! the same blocks again and again, because they come from a pool: so what a collective uses for the second time is made
//! known, and given up before the block goes back to the device or the communicator ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::FreeObserver;
use crate::comm::CommError;

use super::api::{Comm, Registration};
use super::watch::Watch;

/// Smaller transfers are a matter of latency, which this does not change.
const FEWEST_BYTES: usize = 1 << 20;
/// Blocks that are remembered at most: every one that is known costs entries in the tables of network cards.
const MOST_BLOCKS: usize = 1024;

/// What the communicators of one rank know.
#[derive(Debug)]
pub struct Registry {
    watch: Arc<Watch>,
    /// By communicator, address and bytes.
    blocks: Mutex<HashMap<(Comm, u64, usize), Block>>,
}

#[derive(Debug, Clone, Copy)]
enum Block {
    /// It was used once.
    Seen,
    Known(Registration),
    /// The library wants nothing to do with it.
    Declined,
}

impl Registry {
    pub fn new(watch: Arc<Watch>) -> Registry {
        Registry { watch, blocks: Mutex::default() }
    }

    /// `call` is about to use memory, which lives until [`FreeObserver::before_free`] is told of it.
    pub fn used(
        &self,
        comm: Comm,
        call: &str,
        (address, bytes): (u64, usize),
    ) -> Result<(), CommError> {
        if bytes < FEWEST_BYTES {
            return Ok(());
        }
        let key = (comm, address, bytes);
        let mut blocks = self.lock();
        match blocks.get(&key) {
            None if blocks.len() < MOST_BLOCKS => drop(blocks.insert(key, Block::Seen)),
            None | Some(Block::Known(_) | Block::Declined) => {}
            Some(Block::Seen) => {
                // SAFETY: an operand lies in one allocation, which `before_free` lets go of in time.
                let register = |library: &dyn super::Library| unsafe {
                    library.register(comm, address, bytes)
                };
                let known = self.watch.using(call, register)?;
                blocks.insert(key, known.map_or(Block::Declined, Block::Known));
            }
        }
        Ok(())
    }

    /// Gives up everything, as the communicators end.
    pub fn clear(&self) {
        self.forget(|_, _| true);
    }

    /// Gives up the memory of which `is_meant`, by its address and bytes.
    fn forget(&self, is_meant: impl Fn(u64, usize) -> bool) {
        let mut blocks = self.lock();
        blocks.retain(|(comm, address, bytes), block| {
            let is_meant = is_meant(*address, *bytes);
            if let (true, Block::Known(registration)) = (is_meant, *block) {
                // A communicator that has failed was aborted, and knows nothing any more.
                let _ = self
                    .watch
                    .using("giving up memory", |library| library.deregister(*comm, registration));
            }
            !is_meant
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(Comm, u64, usize), Block>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FreeObserver for Registry {
    fn before_free(&self, address: u64, bytes: usize) {
        let end = address + bytes as u64;
        self.forget(|start, len| start < end && address < start + len as u64);
    }
}

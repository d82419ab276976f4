//! Registration of user buffers with the library.
//!
//! The library copies data for the network through its own staging buffers, unless the memory is registered. A training
//! step reuses the same blocks of a memory pool: so memory is registered when a collective uses it for the second time,
//! and deregistered before the block is freed or the communicator is finalized.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::CommError;
use meshwright_backend::FreeObserver;

use super::api::{Comm, Registration};
use super::watchdog::Watchdog;

/// Smallest registered block: smaller transfers are bound by latency, which registration does not change.
const MIN_BYTES: usize = 1 << 20;
/// Largest number of tracked blocks: each registration takes entries in the tables of network adapters.
const MAX_BLOCKS: usize = 1024;

/// The registered memory of one rank's communicators.
#[derive(Debug)]
pub struct Registrations {
    watchdog: Arc<Watchdog>,
    /// Registered blocks by communicator, address and bytes.
    blocks: Mutex<HashMap<(Comm, u64, usize), BlockState>>,
}

#[derive(Debug, Clone, Copy)]
enum BlockState {
    UsedOnce,
    Registered(Registration),
    /// The library does not need a registration.
    Declined,
}

impl Registrations {
    /// Creates an empty set.
    pub fn new(watchdog: Arc<Watchdog>) -> Registrations {
        Registrations { watchdog, blocks: Mutex::default() }
    }

    /// Notes that `call` uses memory, which lives until [`FreeObserver::before_free`], and registers it if it is
    /// reused.
    pub fn note_use(
        &self,
        comm: Comm,
        call: &str,
        (address, bytes): (u64, usize),
    ) -> Result<(), CommError> {
        if bytes < MIN_BYTES {
            return Ok(());
        }
        let key = (comm, address, bytes);
        let mut blocks = self.lock_blocks();
        match blocks.get(&key) {
            None if blocks.len() < MAX_BLOCKS => drop(blocks.insert(key, BlockState::UsedOnce)),
            None | Some(BlockState::Registered(_) | BlockState::Declined) => {}
            Some(BlockState::UsedOnce) => {
                // SAFETY: an operand is inside one allocation, which `before_free` deregisters in time.
                let register = |library: &dyn super::Library| unsafe {
                    library.register_memory(comm, address, bytes)
                };
                let registered = self.watchdog.with_library(call, register)?;
                blocks.insert(key, registered.map_or(BlockState::Declined, BlockState::Registered));
            }
        }
        Ok(())
    }

    /// Deregisters all memory, before the communicators are finalized.
    pub fn clear(&self) {
        self.deregister_where(|_, _| true);
    }

    /// Deregisters the memory that `predicate` selects by address and bytes.
    fn deregister_where(&self, predicate: impl Fn(u64, usize) -> bool) {
        let mut blocks = self.lock_blocks();
        blocks.retain(|(comm, address, bytes), block| {
            let is_selected = predicate(*address, *bytes);
            if let (true, BlockState::Registered(registration)) = (is_selected, *block) {
                // The registrations of a communicator that was aborted are gone.
                let _ = self.watchdog.with_library("deregistering memory", |library| {
                    library.deregister_memory(*comm, registration)
                });
            }
            !is_selected
        });
    }

    fn lock_blocks(&self) -> MutexGuard<'_, HashMap<(Comm, u64, usize), BlockState>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FreeObserver for Registrations {
    fn before_free(&self, address: u64, bytes: usize) {
        let end = address + bytes as u64;
        self.deregister_where(|start, len| start < end && address < start + len as u64);
    }
}

//! Private pools: memory that captured graphs use, which no other buffer gets.

use std::sync::Arc;

use super::pool::BlockPool;
use super::{AllocatorState, CachingAllocator};

/// The blocks that an allocator keeps apart from its pool.
#[derive(Debug, Default)]
pub(super) struct PrivateBlocks {
    /// True during a capture, which draws on the private pool.
    pub(super) is_open: bool,
    /// Number of buffers that had been allocated when the last capture ended: its graph may use any of them.
    until: u64,
    pub(super) free: BlockPool,
}

impl PrivateBlocks {
    /// Returns true if a captured graph may use the `number`-th allocated buffer.
    pub(super) fn may_use(&self, number: u64) -> bool {
        self.is_open || number <= self.until
    }
}

/// A handle to the private pool of an allocator; on a device it includes page-locked host memory.
///
/// While the handle exists, the memory of buffers that were alive while the pool was [open](Self::open_pool) is used
/// only by later openings. The allocator reclaims the memory if it has no other left; then the pool is no longer
/// [valid](Self::is_valid).
#[derive(Debug)]
pub struct PrivatePool(Arc<CachingAllocator>);

impl CachingAllocator {
    /// Creates an empty private pool.
    pub fn private_pool(self: &Arc<Self>) -> PrivatePool {
        self.with_offloaded(|state| state.private = Some(PrivateBlocks::default()));
        PrivatePool(Arc::clone(self))
    }

    fn with_offloaded(&self, mut change: impl FnMut(&mut AllocatorState)) {
        change(&mut self.lock_state());
        if let Some(offloaded) = &self.offloaded {
            change(&mut offloaded.lock_state());
        }
    }
}

impl PrivatePool {
    /// Opens the pool: buffers are allocated from it first, and their memory belongs to it.
    pub fn open_pool(&self) {
        self.change(|_, private| private.is_open = true);
    }

    /// Closes the pool: buffers are allocated from other memory.
    pub fn close(&self) {
        self.change(|allocated, private| {
            private.is_open = false;
            private.until = allocated;
        });
    }

    /// Returns true if the allocator has reclaimed none of the memory.
    pub fn is_valid(&self) -> bool {
        let mut is_valid = true;
        self.0.with_offloaded(|state| is_valid &= state.private.is_some());
        is_valid
    }

    fn change(&self, change: impl Fn(u64, &mut PrivateBlocks)) {
        self.0.with_offloaded(|state| {
            let allocated = state.allocated;
            if let Some(private) = &mut state.private {
                change(allocated, private);
            }
        });
    }
}

impl Drop for PrivatePool {
    fn drop(&mut self) {
        self.0.with_offloaded(AllocatorState::dissolve_private_pool);
    }
}

impl AllocatorState {
    /// Puts the private blocks back into the pool.
    pub(super) fn dissolve_private_pool(&mut self) {
        if let Some(private) = self.private.take() {
            self.free.append(private.free);
        }
    }
}

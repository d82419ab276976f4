//! The allocator of a rank's memory for calls.

use std::sync::{Arc, OnceLock};

use meshwright_backend::CachingAllocator;

/// The allocator of the rank once it has one, so that this memory is part of its accounting, and its own before.
pub struct ScratchAllocator {
    of_rank: OnceLock<Arc<CachingAllocator>>,
    own: Arc<CachingAllocator>,
}

impl ScratchAllocator {
    /// Creates an allocator without that of the rank.
    pub fn new() -> ScratchAllocator {
        ScratchAllocator { of_rank: OnceLock::new(), own: CachingAllocator::new() }
    }

    /// Uses the allocator of the rank from now on, if its memory is that of the host.
    pub fn use_allocator(&self, allocator: &Arc<CachingAllocator>) {
        if allocator.device().is_none() {
            // A second context of the rank does not change the accounting of the first.
            let _ = self.of_rank.set(Arc::clone(allocator));
        }
    }

    pub fn get(&self) -> &Arc<CachingAllocator> {
        self.of_rank.get().unwrap_or(&self.own)
    }
}

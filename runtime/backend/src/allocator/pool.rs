//! The pool of a caching allocator: freed blocks, kept for the next buffer of their size.

use std::collections::BTreeMap;

use crate::block::{MemoryBlock, MemorySource};

/// Number of requests after which a block that none of them has taken is freed: more than most training steps make, so
/// that a step finds all its blocks.
pub(super) const MAX_UNUSED: u64 = 1 << 16;

/// Freed blocks by size.
#[derive(Debug, Default)]
pub(super) struct BlockPool {
    /// The blocks of a size in the order of their arrival, each with the number of requests before.
    blocks: BTreeMap<usize, Vec<(u64, MemoryBlock)>>,
    bytes: usize,
    /// Number of requests so far.
    requests: u64,
}

impl BlockPool {
    /// Returns the size of all blocks in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the sizes of the blocks, the smallest first.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> Vec<usize> {
        let sizes = self.blocks.iter().filter(|(_, blocks)| !blocks.is_empty());
        sizes.map(|(size, _)| *size).collect()
    }

    /// Moves all blocks of another pool into this one.
    pub(super) fn append(&mut self, other: BlockPool) {
        other.blocks.into_values().flatten().for_each(|(_, block)| self.put_block(block));
    }

    /// Returns a block of exactly this size.
    pub(super) fn take_block(&mut self, bytes: usize) -> Option<MemoryBlock> {
        self.requests += 1;
        let (_, block) = self.blocks.get_mut(&bytes)?.pop()?;
        self.bytes -= bytes;
        Some(block)
    }

    /// Allocates a block from `source`, with at most `kept` bytes left in the pool; with none left if `source` is out
    /// of memory.
    pub(super) fn allocate(
        &mut self,
        bytes: usize,
        kept: usize,
        source: &MemorySource,
    ) -> Option<MemoryBlock> {
        self.trim_to(kept);
        MemoryBlock::allocate(source, bytes).or_else(|| {
            self.trim_to(0);
            MemoryBlock::allocate(source, bytes)
        })
    }

    /// Puts a block into the pool.
    pub(super) fn put_block(&mut self, block: MemoryBlock) {
        self.bytes += block.len();
        self.blocks.entry(block.len()).or_default().push((self.requests, block));
    }

    /// Frees blocks that were not used for long, such as those for rows of experts, whose number differs from step to
    /// step: without it, the pool would come to hold a block of each number.
    pub(super) fn free_unused(&mut self) {
        if !self.requests.is_multiple_of(MAX_UNUSED) {
            return;
        }
        let oldest = self.requests.saturating_sub(MAX_UNUSED);
        for blocks in self.blocks.values_mut() {
            let unused = blocks.partition_point(|(put, _)| *put < oldest);
            self.bytes -= blocks.drain(..unused).map(|(_, block)| block.len()).sum::<usize>();
        }
        self.blocks.retain(|_, blocks| !blocks.is_empty());
    }

    /// Frees blocks until the others take at most `bytes`: the largest first, since those are the fewest to allocate
    /// again.
    pub(super) fn trim_to(&mut self, bytes: usize) {
        while self.bytes > bytes {
            let Some(mut largest) = self.blocks.last_entry() else { return };
            match largest.get_mut().pop() {
                Some((_, block)) => self.bytes -= block.len(),
                None => drop(largest.remove()),
            }
        }
    }
}

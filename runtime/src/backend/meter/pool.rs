//! Freed blocks, kept for the next buffer of their size.

use std::collections::BTreeMap;

use crate::backend::block::{Block, Source};

/// Freed blocks, by size.
#[derive(Debug, Default)]
pub(super) struct Pool {
    blocks: BTreeMap<usize, Vec<Block>>,
    bytes: usize,
}

impl Pool {
    /// Bytes of all blocks.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sizes of the blocks, the smallest first.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> Vec<usize> {
        let sizes = self.blocks.iter().filter(|(_, blocks)| !blocks.is_empty());
        sizes.map(|(size, _)| *size).collect()
    }

    /// Takes over all blocks of another.
    pub(super) fn append(&mut self, other: Pool) {
        other.blocks.into_values().flatten().for_each(|block| self.put(block));
    }

    /// A block of exactly this size.
    pub(super) fn take(&mut self, bytes: usize) -> Option<Block> {
        let block = self.blocks.get_mut(&bytes)?.pop()?;
        self.bytes -= bytes;
        Some(block)
    }

    /// A block that `source` gives, with at most `kept` bytes of the others left in the pool; none of them, if need be.
    pub(super) fn make_room(
        &mut self,
        bytes: usize,
        kept: usize,
        source: &Source,
    ) -> Option<Block> {
        self.shrink_to(kept);
        Block::of(source, bytes).or_else(|| {
            self.shrink_to(0);
            Block::of(source, bytes)
        })
    }

    /// Keeps a block.
    pub(super) fn put(&mut self, block: Block) {
        self.bytes += block.len();
        self.blocks.entry(block.len()).or_default().push(block);
    }

    /// Gives blocks back to the system until the others take at most `bytes`: the largest first, which are the fewest
    /// to be asked for again.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        while self.bytes > bytes {
            let Some(mut largest) = self.blocks.last_entry() else { return };
            match largest.get_mut().pop() {
                Some(block) => self.bytes -= block.len(),
                None => drop(largest.remove()),
            }
        }
    }
}

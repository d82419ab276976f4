//! Memory behind the addresses of a dry run on the host.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::block::{MemoryBlock, MemorySource};

/// Largest sum of the sizes of blocks with memory.
const LIMIT: usize = 128 << 20;

/// The blocks of a dry run by address, and the memory of those that were touched.
#[derive(Debug, Default)]
pub(super) struct TouchedMemory(Mutex<Blocks>);

#[derive(Debug, Default)]
struct Blocks {
    by_address: BTreeMap<usize, Block>,
    /// Sum of the sizes of blocks with memory.
    touched: usize,
}

#[derive(Debug)]
struct Block {
    bytes: usize,
    memory: Option<MemoryBlock>,
}

impl TouchedMemory {
    /// Adds a block of `bytes` bytes without memory.
    pub fn add_block(&self, address: usize, bytes: usize) {
        self.lock().by_address.insert(address, Block { bytes, memory: None });
    }

    /// Removes a block, and frees its memory.
    pub fn remove_block(&self, address: usize) {
        let mut blocks = self.lock();
        if let Some(Block { bytes, memory: Some(_) }) = blocks.by_address.remove(&address) {
            blocks.touched -= bytes;
        }
    }

    /// Returns the memory behind an address, which the block gets if it has none; `None` beyond the limit.
    pub fn touch(&self, address: usize) -> Option<NonNull<u8>> {
        let mut blocks = self.lock();
        let Blocks { by_address, touched } = &mut *blocks;
        let (start, block) = by_address.range_mut(..=address).next_back()?;
        if block.memory.is_none() && *touched + block.bytes <= LIMIT {
            block.memory = MemoryBlock::allocate(&MemorySource::Reserved, block.bytes);
            *touched += block.memory.as_ref().map_or(0, MemoryBlock::len);
        }
        block.memory_at(address - start)
    }

    /// Returns the memory behind an address, if its block was touched.
    pub fn touched(&self, address: usize) -> Option<NonNull<u8>> {
        let blocks = self.lock();
        let (start, block) = blocks.by_address.range(..=address).next_back()?;
        block.memory_at(address - start)
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Block {
    fn memory_at(&self, offset: usize) -> Option<NonNull<u8>> {
        NonNull::new(self.memory.as_ref()?.as_ptr().wrapping_add(offset))
    }
}

//! The key ranges of blocks of attention on the device, and the blocks that the layers of a rank have read.

use std::cell::RefCell;
use std::sync::Arc;

use crate::context::{KeyBlock, KeyRangeBuffers, Rank, VisibleRows};
use meshwright_backend::{Category, DType};

impl VisibleRows {
    /// Returns the key ranges of a block. The first call computes them; all layers share them, and their backward.
    pub(crate) fn key_ranges(&self, rank: &Rank, block: KeyBlock) -> KeyRangeBuffers {
        let known = self.key_ranges.borrow();
        if let Some((_, ranges)) = known.iter().find(|(of, _)| *of == block) {
            return ranges.clone();
        }
        drop(known);
        let ranges = if rank.leaves_out_numbers(self.starts.len()) {
            let len = self.starts.len() / self.seq.max(1) * block.queries.local;
            let alloc = |()| rank.allocator().alloc(DType::U32, len, Category::Activations);
            [(); 2].map(alloc).map(Arc::new)
        } else {
            let upload = |ids: Vec<u32>| rank.allocator().copy_of(&ids, Category::Activations);
            self.find_key_ranges(&block).map(upload).map(Arc::new)
        };
        rank.session_state::<KeyBlocks>().note(&block);
        self.key_ranges.borrow_mut().push((block, ranges.clone()));
        ranges
    }
}

/// State of a rank: the blocks whose key ranges its layers have read. They depend on the model and on the length of a
/// sequence, not on documents.
#[derive(Default)]
pub(crate) struct KeyBlocks(RefCell<Vec<KeyBlock>>);

impl KeyBlocks {
    fn note(&self, block: &KeyBlock) {
        let mut blocks = self.0.borrow_mut();
        if !blocks.contains(block) {
            blocks.push(block.clone());
        }
    }

    /// Returns the number of blocks.
    pub(crate) fn count(&self) -> usize {
        self.0.borrow().len()
    }

    /// Returns the key blocks of sequences of `seq` tokens.
    pub(crate) fn of_sequences(&self, seq: usize) -> Vec<KeyBlock> {
        self.0.borrow().iter().filter(|block| block.queries.global == seq).cloned().collect()
    }
}

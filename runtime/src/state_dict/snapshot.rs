//! A copy of the training state, which is saved while training goes on.

use std::ops::Range;

use super::training_state::{SavedValues, TrainingState, shard_entries, with_saved_values};
use crate::backend::{Buffer, Category, DType};
use crate::checkpoint::{ShardEntry, TensorBox};
use crate::tensor::Rank;

/// A copy of everything that a rank saves, in host memory: on a device, page-locked memory.
pub struct StateSnapshot {
    shards: Vec<CopiedShard>,
    /// The elements of all shards, one after the other.
    values: Buffer,
}

/// A shard of a tensor, without its elements.
struct CopiedShard {
    name: String,
    global_shape: Vec<usize>,
    tensor_box: TensorBox,
    range: Range<usize>,
}

impl StateSnapshot {
    /// Allocates a snapshot that has no values yet.
    pub fn new(rank: &Rank, state: &TrainingState<'_>) -> StateSnapshot {
        let len = with_saved_values(rank, state, elements_of);
        let values = rank.allocator().alloc(DType::F32, len, Category::Offloaded);
        StateSnapshot { shards: Vec::new(), values }
    }

    /// Copies the current values of the same state.
    ///
    /// # Panics
    /// If the state has another number of elements: a fault of the calling code.
    pub fn copy(&mut self, rank: &Rank, state: &TrainingState<'_>) {
        with_saved_values(rank, state, |saved| {
            assert_eq!(elements_of(saved), self.values.len(), "elements of a snapshot");
            self.shards.clear();
            let (mut start, mut rest) = (0, self.values.typed_mut::<f32>());
            for saved in saved {
                let (copy, after) = rest.split_at_mut(saved.values.len());
                saved.values.read(copy);
                rest = after;
                for ShardEntry { name, global_shape, tensor_box, data } in
                    shard_entries(saved, copy)
                {
                    let range = start..start + data.len();
                    start = range.end;
                    self.shards.push(CopiedShard { name, global_shape, tensor_box, range });
                }
            }
        });
    }

    /// Returns the copied shards.
    pub fn entries(&self) -> Vec<ShardEntry<'_>> {
        let values = self.values.typed::<f32>();
        let entry = |shard: &CopiedShard| ShardEntry {
            name: shard.name.clone(),
            global_shape: shard.global_shape.clone(),
            tensor_box: shard.tensor_box.clone(),
            data: &values[shard.range.clone()],
        };
        self.shards.iter().map(entry).collect()
    }
}

fn elements_of(saved: &[SavedValues<'_>]) -> usize {
    saved.iter().map(|saved| saved.values.len()).sum()
}

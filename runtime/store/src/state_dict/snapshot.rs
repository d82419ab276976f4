//! A copy of the training state, which is saved while training goes on.

use super::training_state::{
    SavedValues, Shard, TrainingState, entries_of, values_on_host, with_saved_values,
};
use crate::checkpoint::ShardEntry;
use meshwright_backend::{Buffer, Category, DType};
use meshwright_core::tensor::Rank;

/// A copy of everything that a rank saves, in host memory: on a device, page-locked memory.
pub struct StateSnapshot {
    shards: Vec<Shard>,
    /// The elements of all shards, one after the other.
    values: Buffer,
}

impl StateSnapshot {
    /// Allocates a snapshot that has no values yet.
    pub fn new(rank: &Rank, state: &TrainingState<'_>) -> StateSnapshot {
        let shards: Vec<Shard> = with_saved_values(rank, state, |saved| {
            saved.iter().flat_map(SavedValues::shards).collect()
        });
        let len = shards.iter().map(|shard| shard.tensor_box.len()).sum();
        let values = rank.allocator().alloc(DType::F32, len, Category::Offloaded);
        StateSnapshot { shards, values }
    }

    /// Copies the current values of the same state.
    ///
    /// # Panics
    /// If the state has another number of elements: a fault of the calling code.
    pub fn copy(&mut self, rank: &Rank, state: &TrainingState<'_>) {
        with_saved_values(rank, state, |saved| {
            let mut rest = self.values.typed_mut::<f32>();
            for saved in saved {
                let (copy, after) = rest.split_at_mut(saved.values.len());
                match saved.values.dtype() {
                    DType::F32 => saved.values.read(copy),
                    _ => copy.copy_from_slice(&values_on_host(saved.values)),
                }
                rest = after;
            }
            assert!(rest.is_empty(), "a snapshot of another state");
        });
    }

    /// Returns the copied shards.
    pub fn entries(&self) -> Vec<ShardEntry<'_>> {
        entries_of(&self.shards, self.values.typed()).collect()
    }
}

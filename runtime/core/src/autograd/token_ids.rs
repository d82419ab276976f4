//! Untyped token ids: this rank's block, on the host and on the device.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::context::Rank;
use meshwright_backend::{Buffer, Category, DType};
use meshwright_mesh::Extent;

/// Token ids without the type of their dims. A clone shares the numbers.
#[derive(Clone)]
pub struct TokenIds {
    rank: Rank,
    extents: Vec<Extent>,
    on_device: Arc<Buffer>,
    /// The ids, and more in a dry run, which leaves them out.
    on_host: Arc<Vec<u32>>,
    len: usize,
    counted: Rc<OnceCell<Arc<Buffer>>>,
}

impl TokenIds {
    /// A target that does not count in losses.
    pub(crate) const IGNORED: u32 = u32::MAX;

    /// Creates token ids from this rank's block, row-major.
    pub(crate) fn new(rank: &Rank, extents: Vec<Extent>, block: &[u32]) -> TokenIds {
        let on_device = Arc::new(rank.allocator().copy_of(block, Category::Activations));
        let (len, counted) = (block.len(), Rc::default());
        let on_host =
            if rank.leaves_out_numbers(len) { rank.zeros(len) } else { Arc::new(block.to_vec()) };
        TokenIds { rank: rank.clone(), extents, on_device, on_host, len, counted }
    }

    /// Creates token ids from a buffer of this rank's block that was received, which is copied to the host.
    pub(crate) fn of_buffer(rank: &Rank, extents: Vec<Extent>, block: Arc<Buffer>) -> TokenIds {
        let (rank, len) = (rank.clone(), block.len());
        // Nothing arrives in a dry run.
        let on_host = if rank.backend().is_dry_run() {
            rank.zeros(len)
        } else {
            Arc::new(block.view().to_vec())
        };
        TokenIds { rank, extents, on_device: block, on_host, len, counted: Rc::default() }
    }

    /// Returns the same token ids on a rank that refers to the documents in their rows.
    pub(crate) fn on_rank(&self, rank: Rank) -> TokenIds {
        TokenIds { rank, ..self.clone() }
    }

    /// Returns the rank that holds the block.
    pub(crate) fn rank(&self) -> &Rank {
        &self.rank
    }

    /// Returns the local extent of each dim.
    pub(crate) fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Returns the ids for kernels.
    pub(crate) fn on_device(&self) -> &Arc<Buffer> {
        &self.on_device
    }

    /// Returns the ids on the host.
    pub(crate) fn on_host(&self) -> &[u32] {
        &self.on_host[..self.len]
    }

    /// Returns 0 for ids that are [`IGNORED`](Self::IGNORED), 1 for the others, in f32; created by the first call.
    pub(crate) fn counted(&self) -> &Arc<Buffer> {
        self.counted.get_or_init(|| {
            let (allocator, len) = (self.rank.allocator(), self.on_host().len());
            if self.rank.leaves_out_numbers(len) {
                return Arc::new(allocator.alloc(DType::F32, len, Category::Activations));
            }
            let weight = |id: &u32| if *id == Self::IGNORED { 0.0f32 } else { 1.0 };
            let weights: Vec<f32> = self.on_host().iter().map(weight).collect();
            Arc::new(allocator.copy_of(&weights, Category::Activations))
        })
    }
}

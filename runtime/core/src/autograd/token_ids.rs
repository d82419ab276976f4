//! Untyped token ids: this rank's block, on the host and on the device.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::context::Rank;
use meshwright_backend::{Buffer, Category, DType};
use meshwright_mesh::Extent;

use super::document_ids::DocumentIds;

/// Token ids without the type of their dims. A clone shares the numbers.
#[derive(Clone)]
pub struct TokenIds {
    rank: Rank,
    extents: Vec<Extent>,
    on_device: Arc<Buffer>,
    /// The ids, and more in a dry run, which leaves them out.
    on_host: Arc<Vec<u32>>,
    len: usize,
    documents: RowDocuments,
    counted: Rc<OnceCell<Arc<Buffer>>>,
}

/// The documents in the rows of token ids.
#[derive(Clone)]
pub enum RowDocuments {
    /// Each row is one document.
    Whole,
    /// Rows of several documents.
    Several(Rc<DocumentIds>),
    /// Unknown: the ids were received from another rank without documents.
    NotReceived,
}

impl RowDocuments {
    /// Returns the documents of rows that hold several.
    #[doc(hidden)]
    pub fn several(&self) -> Option<&Rc<DocumentIds>> {
        match self {
            RowDocuments::Several(documents) => Some(documents),
            RowDocuments::Whole | RowDocuments::NotReceived => None,
        }
    }
}

impl TokenIds {
    /// A target that does not count in losses.
    pub(crate) const IGNORED: u32 = u32::MAX;

    /// Creates token ids from this rank's block, row-major.
    pub(crate) fn new(rank: &Rank, extents: Vec<Extent>, block: &[u32]) -> TokenIds {
        let on_device = Arc::new(rank.allocator().copy_of(block, Category::Activations));
        let (documents, counted) = (RowDocuments::Whole, Rc::default());
        let len = block.len();
        let on_host =
            if rank.leaves_out_numbers(len) { rank.zeros(len) } else { Arc::new(block.to_vec()) };
        TokenIds { rank: rank.clone(), extents, on_device, on_host, len, documents, counted }
    }

    /// Creates token ids from a buffer of this rank's block that was received, which is copied to the host.
    pub(crate) fn of_buffer(rank: &Rank, extents: Vec<Extent>, block: Arc<Buffer>) -> TokenIds {
        let (rank, len) = (rank.clone(), block.len());
        let on_host = if rank.leaves_out_numbers(len) {
            rank.zeros(len)
        } else {
            Arc::new(block.view().to_vec())
        };
        let (documents, counted) = (RowDocuments::NotReceived, Rc::default());
        TokenIds { rank, extents, on_device: block, on_host, len, documents, counted }
    }

    /// Returns the same token ids with documents in their rows.
    pub(crate) fn with_documents(&self, documents: DocumentIds) -> TokenIds {
        let documents = RowDocuments::Several(Rc::new(documents));
        TokenIds { documents, ..self.clone() }
    }

    /// Returns the documents in the rows.
    #[doc(hidden)]
    pub fn documents(&self) -> &RowDocuments {
        &self.documents
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

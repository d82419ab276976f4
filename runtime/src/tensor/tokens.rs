//! Token ids: what models read, and what they are to predict.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::backend::{Buffer, Category};
use crate::layout::Shape;

use super::Rank;
use super::typed::extents_of;
use super::value::{Extent, local_len};

/// Token ids shaped `S`, one `u32` each.
pub struct Tokens<S> {
    rank: Rank,
    extents: Vec<Extent>,
    ids: Arc<Buffer>,
    shape: PhantomData<S>,
}

/// What a model is to predict, shaped `S`: token ids, or [`Targets::IGNORED`].
pub type Targets<S> = Tokens<S>;

impl<S: Shape> Tokens<S> {
    /// A target that counts in no loss.
    pub const IGNORED: u32 = u32::MAX;

    /// Token ids made of this rank's block, row-major. `sizes` are those of the **global** dims.
    ///
    /// # Panics
    /// When `block` has another number of elements than the rank's share of `sizes`.
    #[track_caller]
    pub fn from_block(rank: &Rank, sizes: &[usize], block: &[u32]) -> Tokens<S> {
        let extents = extents_of::<S>(rank, sizes);
        assert_eq!(
            block.len(),
            local_len(&extents),
            "a block of {} tokens is not this rank's share of {sizes:?}",
            block.len()
        );
        let ids = Arc::new(rank.meter().copy_of(block, Category::Activations));
        Tokens { rank: rank.clone(), extents, ids, shape: PhantomData }
    }

    /// Token ids of a micro-batch: `block` holds some of the rows of this rank's block, from its row `first` on. They
    /// keep their place in the global batch, so that dropout draws for them what it would draw without micro-batches.
    ///
    /// # Panics
    /// When `block` does not hold whole rows, or more than follow row `first`.
    #[track_caller]
    pub fn from_rows(rank: &Rank, sizes: &[usize], first: usize, block: &[u32]) -> Tokens<S> {
        let mut extents = extents_of::<S>(rank, sizes);
        let row = local_len(&extents[1..]);
        let rows = block.len() / row;
        assert!(
            rows * row == block.len() && first + rows <= extents[0].local,
            "a block of {} tokens is not made of the rows of {sizes:?} from row {first} on",
            block.len()
        );
        extents[0].offset += first;
        extents[0].local = rows;
        let ids = Arc::new(rank.meter().copy_of(block, Category::Activations));
        Tokens { rank: rank.clone(), extents, ids, shape: PhantomData }
    }

    /// The place of each token in its sequence, the last of these dims.
    pub(crate) fn places(rank: &Rank, extents: &[Extent]) -> Tokens<S> {
        let (sequence, rows) = extents.split_last().expect("tokens have a sequence");
        let places = sequence.offset..sequence.offset + sequence.local;
        let ids = (0..local_len(rows)).flat_map(|_| places.clone().map(|place| place as u32));
        let ids: Vec<u32> = ids.collect();
        let ids = Arc::new(rank.meter().copy_of(&ids, Category::Activations));
        Tokens { rank: rank.clone(), extents: extents.to_vec(), ids, shape: PhantomData }
    }

    /// Size and place of this rank's block, dim by dim.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    pub(crate) fn rank(&self) -> &Rank {
        &self.rank
    }

    pub(crate) fn ids(&self) -> &Arc<Buffer> {
        &self.ids
    }
}

impl<S> Clone for Tokens<S> {
    fn clone(&self) -> Self {
        Tokens {
            rank: self.rank.clone(),
            extents: self.extents.clone(),
            ids: Arc::clone(&self.ids),
            shape: PhantomData,
        }
    }
}

//! Token ids: what models read, and what they are to predict.

use std::cell::OnceCell;
use std::marker::PhantomData;
use std::rc::Rc;
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
    on_host: Arc<[u32]>,
    counted: Rc<OnceCell<Arc<Buffer>>>,
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
        Tokens::new(rank, extents, block)
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
        Tokens::new(rank, extents, block)
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

    /// The ids, on the host.
    pub(crate) fn on_host(&self) -> &[u32] {
        &self.on_host
    }

    /// How many are not [`IGNORED`](Self::IGNORED).
    pub(crate) fn count(&self) -> u64 {
        self.on_host.iter().filter(|id| **id != Self::IGNORED).count() as u64
    }

    /// 0 for ids that are [`IGNORED`](Self::IGNORED), 1 for the others, in f32; made with the first call.
    pub(crate) fn counted(&self) -> &Arc<Buffer> {
        self.counted.get_or_init(|| {
            let weight = |id: &u32| if *id == Self::IGNORED { 0.0f32 } else { 1.0 };
            let weights: Vec<f32> = self.on_host.iter().map(weight).collect();
            Arc::new(self.rank.meter().copy_of(&weights, Category::Activations))
        })
    }

    fn new(rank: &Rank, extents: Vec<Extent>, block: &[u32]) -> Tokens<S> {
        let ids = Arc::new(rank.meter().copy_of(block, Category::Activations));
        let (on_host, counted) = (block.into(), Rc::default());
        Tokens { rank: rank.clone(), extents, ids, on_host, counted, shape: PhantomData }
    }
}

impl<S> Clone for Tokens<S> {
    fn clone(&self) -> Self {
        Tokens {
            rank: self.rank.clone(),
            extents: self.extents.clone(),
            ids: Arc::clone(&self.ids),
            on_host: Arc::clone(&self.on_host),
            counted: Rc::clone(&self.counted),
            shape: PhantomData,
        }
    }
}

//! Documents in the rows of a micro-batch, which attention and learned positions keep apart.

use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

use crate::context::{DocumentIds, Rank, VisibleRows};
use crate::layout::{DimInfo, Dims};
use meshwright_backend::{Buffer, Category, DType};
use meshwright_mesh::__internal::{local_len, shape_name};
use meshwright_mesh::Extent;

use super::Tokens;

/// The documents of [`Tokens`] shaped `S`, as an operand of layers.
///
/// Layers find the documents of the tokens that their input is computed from, so most models never name them. A model
/// that computes the borders of documents itself passes them to the layers that keep them apart:
///
/// ```
/// # use meshwright::prelude::*;
/// # dims! { Batch @ data, Seq, Hidden, Vocab }
/// # type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;
/// # #[model]
/// # struct Ends {
/// #     #[sharded(tp = "vocab", scatter = Seq)]
/// #     embed: Embedding<Vocab, Hidden>,
/// #     positions: LearnedPositions<Seq, Hidden>,
/// # }
/// # fn starts_of(tokens: &Tokens<(Batch, Seq)>) -> Vec<u32> { vec![0; tokens.to_local_vec().len()] }
/// #[forward]
/// impl Ends {
///     fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream {
///         let documents = tokens.with_documents(&starts_of(tokens)).documents();
///         self.positions.forward_in(&self.embed.forward(tokens), &documents)
///     }
/// }
/// ```
pub struct Documents<S> {
    rank: Rank,
    extents: Vec<Extent>,
    /// `None` if each row is one document.
    ids: Option<Rc<DocumentIds>>,
    shape: PhantomData<S>,
}

impl<S: Dims> Tokens<S> {
    /// Returns the same tokens, with several documents in their rows. `starts` holds, for each token of the whole rows
    /// of this rank's block, the position in its row at which its document begins.
    ///
    /// All that is computed from these tokens has the documents: attention over their sequence keeps them apart, and
    /// learned positions restart with each of them. They cross pipeline stages without a message, since the ranks of
    /// all stages read the tokens of their data rank.
    ///
    /// # Panics
    /// If `starts` do not fill whole rows, or do not belong to documents that follow one another.
    #[must_use = "the tokens have documents where the result is used"]
    #[track_caller]
    pub fn with_documents(&self, starts: &[u32]) -> Tokens<S> {
        let (rank, extents) = (self.rank(), self.local_extents());
        let (sequence, rows) = extents.split_last().expect("tokens have a sequence");
        let len = local_len(rows) * sequence.global;
        assert!(
            starts.len() == len,
            "documents need whole rows, and a start for each of the {len} tokens in the rows of the block, not {}",
            starts.len()
        );
        let name = || format!("documents of token ids shaped {}", shape_name(S::DIMS));
        let varies = Tokens::<S>::VARIES_OF_ROWS;
        rank.declared_values().note_elements(name, varies, Location::caller(), starts);
        rank.note_documents(starts, varies, Location::caller());
        let documents = upload_documents(rank, (S::DIMS, extents), starts);
        Tokens::of_untyped(self.untyped().on_rank(rank.with_documents(documents)))
    }

    /// Returns the documents in the rows: with `--documents`, the documents of the data; without, each row is one.
    #[track_caller]
    pub fn documents(&self) -> Documents<S> {
        let ids = self.rank().documents_of(S::DIMS).cloned();
        let (rank, extents) = (self.rank().clone(), self.local_extents().to_vec());
        Documents { rank, extents, ids, shape: PhantomData }
    }
}

/// Copies documents of tokens to the device, for those that this rank holds; `starts` are positions in the row, for all
/// tokens of whole rows.
#[track_caller]
fn upload_documents(
    rank: &Rank,
    (dims, extents): (&'static [DimInfo], &[Extent]),
    starts: &[u32],
) -> DocumentIds {
    let (sequence, extents) = (extents[extents.len() - 1], extents.to_vec());
    if rank.leaves_out_numbers(starts.len()) {
        let len = local_len(&extents);
        let alloc = || Arc::new(rank.allocator().alloc(DType::U32, len, Category::Activations));
        let rows = Rc::new(VisibleRows::new(sequence.global, vec![0; starts.len()], Vec::new()));
        let (starts, ends, places) = (alloc(), alloc(), alloc());
        return DocumentIds { dims, extents, starts, ends, places, rows };
    }
    let (own, rows) = DocumentIds::on_host(&sequence, starts);
    let upload = |own| Arc::new(rank.allocator().copy_of(own, Category::Activations));
    let [starts, ends, places] = own.each_ref().map(|own| upload(&own[..]));
    DocumentIds { dims, extents, starts, ends, places, rows: Rc::new(rows) }
}

/// State of a rank: true if a layer has read documents, or states that it ignores them.
#[derive(Default)]
struct DocumentUse(Cell<bool>);

impl Rank {
    /// Returns true if a layer of this rank has read documents, or states that it ignores them.
    #[doc(hidden)]
    pub fn has_used_documents(&self) -> bool {
        self.session_state::<DocumentUse>().0.get()
    }

    /// Notes that a layer has read documents, or states that it ignores them.
    pub(crate) fn note_use_of_documents(&self) {
        self.session_state::<DocumentUse>().0.set(true);
    }
}

impl<S: Dims> Documents<S> {
    /// Returns the rank that holds the block.
    pub fn rank(&self) -> &Rank {
        &self.rank
    }

    /// Returns the local extent of each dim.
    pub fn local_extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Returns, for each token, the position in its row at which its document begins: u32, shaped as the block. `None`
    /// if each row is one document.
    pub fn starts(&self) -> Option<&Arc<Buffer>> {
        Some(&self.ids()?.starts)
    }

    /// Returns, for each token, the position in its row after the last token of its document, as
    /// [`starts`](Self::starts).
    pub fn ends(&self) -> Option<&Arc<Buffer>> {
        Some(&self.ids()?.ends)
    }

    /// Returns the position of each token in its document, as [`starts`](Self::starts).
    pub fn places(&self) -> Option<&Arc<Buffer>> {
        Some(&self.ids()?.places)
    }

    /// Returns the documents, for a layer that keeps them apart; `None` if each row is one.
    pub(crate) fn ids(&self) -> Option<&Rc<DocumentIds>> {
        self.rank.note_use_of_documents();
        self.ids.as_ref()
    }
}

impl<S> Clone for Documents<S> {
    fn clone(&self) -> Self {
        let (rank, extents) = (self.rank.clone(), self.extents.clone());
        Documents { rank, extents, ids: self.ids.clone(), shape: PhantomData }
    }
}

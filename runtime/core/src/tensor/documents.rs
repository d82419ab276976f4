//! Documents in the rows of a batch, as a value that a model passes to the layers that keep them apart.

use std::marker::PhantomData;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

use crate::autograd::{
    DocumentIds, DocumentUse, Part, PartKind, RowDocuments, SegmentData, TokenIds,
};
use crate::context::Rank;
use crate::layout::{Dims, Internal};
use meshwright_backend::Buffer;
use meshwright_mesh::__internal::{local_len, shape_name};
use meshwright_mesh::Extent;

use super::Tokens;

/// The documents of [`Tokens`] shaped `S`: rows may hold several, which attention and learned positions keep apart.
///
/// A model gets them from its tokens and passes them on, so one program serves rows of one document and of several:
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
/// #[forward]
/// impl Ends {
///     fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream {
///         self.positions.forward_in(&self.embed.forward(tokens), &tokens.documents())
///     }
/// }
/// ```
///
/// They can enter and leave recomputed segments, and cross from one pipeline stage to the next: without a message,
/// since the ranks of all stages read the tokens of their data rank.
pub struct Documents<S> {
    /// The tokens whose documents these are.
    tokens: TokenIds,
    shape: PhantomData<S>,
}

impl<S: Dims> Tokens<S> {
    /// Returns the same tokens, with several documents in their rows. `starts` holds, for each token of the whole rows
    /// of this rank's block, the position in its row at which its document begins.
    ///
    /// # Panics
    /// If `starts` do not fill whole rows, or do not belong to documents that follow one another.
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
        let documents = DocumentIds::new(rank, sequence, starts);
        Tokens::of_untyped(self.untyped().with_documents(documents))
    }

    /// Returns the documents in the rows: with `--documents`, the documents of the data; without, each row is one.
    ///
    /// # Panics
    /// If the tokens were received from another pipeline stage, which has not sent their documents.
    #[track_caller]
    pub fn documents(&self) -> Documents<S> {
        if let RowDocuments::NotReceived = self.untyped().documents() {
            panic!(
                "these tokens come from another pipeline stage, without their documents: call `tokens.documents()` in \
                 the first stage, and pass the documents on with the tokens from stage to stage"
            );
        }
        Documents { tokens: self.untyped().clone(), shape: PhantomData }
    }
}

impl Rank {
    /// Returns true if a layer of this rank has read documents.
    #[doc(hidden)]
    pub fn has_used_documents(&self) -> bool {
        self.session_state::<DocumentUse>().0.get()
    }
}

impl<S: Dims> Documents<S> {
    /// Returns the rank that holds the block.
    pub fn rank(&self) -> &Rank {
        self.tokens.rank()
    }

    /// Returns the local extent of each dim.
    pub fn local_extents(&self) -> &[Extent] {
        self.tokens.extents()
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
        self.rank().session_state::<DocumentUse>().0.set(true);
        self.tokens.documents().several()
    }
}

impl<S> Clone for Documents<S> {
    fn clone(&self) -> Self {
        Documents { tokens: self.tokens.clone(), shape: PhantomData }
    }
}

#[diagnostic::do_not_recommend]
impl<S: Dims> SegmentData for Documents<S> {
    fn add_part_kinds(kinds: &mut Vec<PartKind>, _: Internal) {
        kinds.push(PartKind::Documents(S::DIMS));
    }

    fn add_parts(&self, parts: &mut Vec<Part>, _: Internal) {
        parts.push(Part::Documents(self.tokens.clone()));
    }

    fn from_parts(next: &mut dyn FnMut() -> Part, _: Internal) -> Documents<S> {
        match next() {
            Part::Documents(tokens) => Documents { tokens, shape: PhantomData },
            _ => unreachable!("the part of documents is documents"),
        }
    }
}

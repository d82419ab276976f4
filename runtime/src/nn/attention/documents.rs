//! Packed documents: samples of several documents, of which each is attended to alone.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use crate::backend::{Band, Buffer, Category};
use crate::layout::{Dim, Here, Internal, Seal, Shape, Whole};
use crate::tensor::{Extent, Part, PartKind, Rank, SegmentData, Tokens};

use super::context::{DocumentStarts, VisiblePositions};
use super::extras::{AttentionExtra, Extras, KeysOfQueries};

/// The documents that are packed into each sample of `S`, which is `(Batch, Seq)`: an optional operand of self-attention. No
/// token attends to tokens of another document.
///
/// Of each token, this has the position at which its document begins. Each rank has those of whole samples, also if their
/// sequence is declared over `cp`.
pub struct Documents<S: PackedShape> {
    starts: Tokens<S::WholeSamples>,
    /// Key ranges of the last attention on whole sequences, which are the same for all layers.
    ranges: Rc<RefCell<Option<[Arc<Buffer>; 2]>>>,
}

/// A shape with packed documents: samples and a sequence, `(Batch, Seq)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a shape of samples with packed documents",
    label = "documents are those of `(Batch, Seq)`, a dim of samples and a sequence"
)]
pub trait PackedShape: 'static {
    /// The shape of one number per position, with whole sequences on each rank.
    type WholeSamples: Shape;
    #[doc(hidden)]
    const SEAL: Seal;
}

/// All positions of a sequence `S`, on every rank.
pub struct AllPositions<S>(PhantomData<S>);

impl<S: Whole> Whole for AllPositions<S> {
    const DECLARED_NAME: &'static str = S::DECLARED_NAME;
    type Home = Here;
}

impl<B: Dim, S: Whole> PackedShape for (B, S)
where
    (B, AllPositions<S>): Shape,
{
    type WholeSamples = (B, AllPositions<S>);
    const SEAL: Seal = Seal::new();
}

impl<S: PackedShape> Documents<S> {
    /// Creates the documents of this rank's samples, of which `lengths` has the lengths of the documents. `batch` and `seq`
    /// are the **global** numbers of samples and of positions.
    ///
    /// # Panics
    /// If `lengths` has another number of samples than this rank's share of `batch`, or the documents of a sample do not have
    /// `seq` tokens together.
    #[track_caller]
    pub fn from_block(
        rank: &Rank,
        [batch, seq]: [usize; 2],
        lengths: &[impl AsRef<[usize]>],
    ) -> Documents<S> {
        Documents::of_starts(Tokens::from_block(rank, &[batch, seq], &starts(seq, lengths)))
    }

    /// Creates the documents of a micro-batch: `lengths` has those of some of this rank's samples, from its sample `first` on,
    /// as [`Tokens::from_rows`] does.
    ///
    /// # Panics
    /// If there are more samples than follow `first`, or the documents of a sample do not have `seq` tokens together.
    #[track_caller]
    pub fn from_rows(
        rank: &Rank,
        [batch, seq]: [usize; 2],
        first: usize,
        lengths: &[impl AsRef<[usize]>],
    ) -> Documents<S> {
        let starts = starts(seq, lengths);
        Documents::of_starts(Tokens::from_rows(rank, &[batch, seq], first, &starts))
    }

    fn of_starts(starts: Tokens<S::WholeSamples>) -> Documents<S> {
        Documents { starts, ranges: Rc::default() }
    }
}

/// Returns, of each position of samples, the position at which its document begins.
#[track_caller]
fn starts(seq: usize, lengths: &[impl AsRef<[usize]>]) -> Vec<u32> {
    let mut starts = Vec::with_capacity(lengths.len() * seq);
    for (sample, lengths) in lengths.iter().enumerate() {
        let mut start = 0;
        for &length in lengths.as_ref() {
            let first = u32::try_from(start).expect("positions are less than 2^32");
            starts.extend(std::iter::repeat_n(first, length));
            start += length;
        }
        assert!(
            start == seq,
            "the documents of sample {sample} have {start} tokens together, but samples have {seq} positions"
        );
    }
    starts
}

impl<S: PackedShape> Clone for Documents<S> {
    fn clone(&self) -> Self {
        Documents { starts: self.starts.clone(), ranges: Rc::clone(&self.ranges) }
    }
}

/// Shapes of documents of queries and keys shaped `(B, S, ..)`.
#[diagnostic::on_unimplemented(
    message = "the documents are those of `{Self}`, but the queries are those of `({B}, {S})`",
    label = "mismatched documents (the fourth element)",
    note = "documents are those of the samples and the sequence of the queries"
)]
pub trait DocumentsOf<B, S> {}

impl<B, S> DocumentsOf<B, S> for (B, S) {}

impl<P, B, S, T, H, K, D> AttentionExtra<(B, S, H, D), (B, T, K, D)> for Documents<P>
where
    P: PackedShape + DocumentsOf<B, S>,
    T: super::SameSequence<S, Self>,
{
    type First = KeysOfQueries;
    type Last = KeysOfQueries;
    const SEAL: Seal = Seal::new();

    #[track_caller]
    fn add_to<'a>(&'a self, extras: &mut Extras<'a>) {
        extras.ranges = Some(self.key_ranges(extras));
    }
}

/// An optional operand of context-parallel attention with queries shaped `Q`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an optional operand of context-parallel attention",
    label = "the fourth element of the operands",
    note = "context-parallel attention takes `Documents<(Batch, Seq)>`; padding, biases and sinks need attention over a sequence that is whole on each rank"
)]
pub trait ContextExtra<Q> {
    #[doc(hidden)]
    fn documents(&self) -> &dyn PackedDocuments;
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<P, B, S, H, D> ContextExtra<(B, S, H, D)> for Documents<P>
where
    P: PackedShape + DocumentsOf<B, S>,
{
    const SEAL: Seal = Seal::new();

    fn documents(&self) -> &dyn PackedDocuments {
        self
    }
}

impl<E: ContextExtra<Q>, Q> ContextExtra<Q> for &E {
    const SEAL: Seal = E::SEAL;

    fn documents(&self) -> &dyn PackedDocuments {
        (**self).documents()
    }
}

impl<S: PackedShape> PackedDocuments for Documents<S> {
    #[track_caller]
    fn starts(&self, path: &str, queries: &[Extent]) -> &[u32] {
        let extents = self.starts.local_extents();
        assert!(
            extents[0] == queries[0] && extents[1].global == queries[1].global,
            "`{path}`: the documents are those of {} samples of {} positions, {} of them here from {} on, but the queries have \
             {} of {}, {} of them here from {} on",
            extents[0].global,
            extents[1].global,
            extents[0].local,
            extents[0].offset,
            queries[0].global,
            queries[1].global,
            queries[0].local,
            queries[0].offset
        );
        self.starts.on_host()
    }

    #[track_caller]
    fn key_ranges(&self, extras: &Extras<'_>) -> [Arc<Buffer>; 2] {
        extras.rank.check_same(self.starts.rank());
        let starts = self.starts(extras.path, extras.queries);
        let mut known = self.ranges.borrow_mut();
        let ranges = known.get_or_insert_with(|| {
            let [samples, positions] = [0, 1].map(|dim| self.starts.local_extents()[dim]);
            let documents = DocumentStarts::new(starts, positions.local);
            // The kernels apply the band of the attention themselves.
            let visible =
                VisiblePositions::new(samples.local, &positions, &documents, Band::ALL);
            let upload = |range: Vec<u32>| {
                Arc::new(extras.rank.allocator().copy_of(&range, Category::Activations))
            };
            visible.key_ranges(&positions).map(upload)
        });
        ranges.clone()
    }
}

/// Packed documents, whatever the dims of their samples.
pub trait PackedDocuments {
    /// Returns, of each position of whole samples, the position at which its document begins. `queries` are the extents of
    /// the queries that attend to their documents.
    #[track_caller]
    fn starts(&self, path: &str, queries: &[Extent]) -> &[u32];
    /// Returns the range of keys in the document of each query, of sequences that are whole on this rank.
    #[track_caller]
    fn key_ranges(&self, extras: &Extras<'_>) -> [Arc<Buffer>; 2];
}

#[diagnostic::do_not_recommend]
impl<S: PackedShape> SegmentData for Documents<S> {
    fn kinds(kinds: &mut Vec<PartKind>, _: Internal) {
        Tokens::<S::WholeSamples>::kinds(kinds, Internal::new());
    }

    fn parts(&self, parts: &mut Vec<Part>, _: Internal) {
        self.starts.parts(parts, Internal::new());
    }

    fn from_parts(next: &mut dyn FnMut() -> Part, _: Internal) -> Documents<S> {
        Documents::of_starts(SegmentData::from_parts(next, Internal::new()))
    }
}

//! Token ids: inputs and targets of models.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use crate::autograd::TokenIds;
use crate::context::{Rank, extents_of, gather_block};
use crate::layout::{AxisSet, DimInfo, Dims, Shape};
use meshwright_backend::Buffer;
use meshwright_mesh::__internal::{global_sizes, local_len, shape_name};
use meshwright_mesh::Extent;

use super::block_by_index::block_by_index;
use super::row_range::{rows_of_block, rows_of_micro_batch};

/// Token ids shaped `S`, one `u32` each.
pub struct Tokens<S: Dims> {
    ids: TokenIds,
    shape: PhantomData<S>,
}

/// Targets of a model, shaped `S`: token ids, or [`Targets::IGNORED`].
pub type Targets<S> = Tokens<S>;

impl<S: Dims> Tokens<S> {
    /// A target that does not count in losses.
    pub const IGNORED: u32 = TokenIds::IGNORED;

    /// The axes over which ranks have different rows.
    pub(super) const VARIES_OF_ROWS: AxisSet = match S::DIMS {
        [_, .., sequence] => S::VARIES.difference(sequence.axes()),
        // A row is one id.
        _ => S::VARIES,
    };
}

impl<S: Dims> Tokens<S> {
    /// Creates token ids from this rank's block, row-major. `sizes` are the sizes of the **global** dims.
    ///
    /// The positions of a sequence declared `@ cp` are those that the rank holds, an early and a late chunk, in
    /// ascending order: `local_extents` returns them. [`from_whole_rows`](Self::from_whole_rows) takes whole rows
    /// instead.
    ///
    /// # Panics
    /// If `block` has another number of elements than the rank's part of `sizes`.
    #[track_caller]
    pub fn from_block(rank: &Rank, sizes: &[usize], block: &[u32]) -> Tokens<S>
    where
        S: Shape,
    {
        let extents = extents_of::<S>(rank, sizes);
        assert_eq!(
            block.len(),
            local_len(&extents),
            "a block of {} tokens is not this rank's block of {sizes:?}",
            block.len()
        );
        Tokens::declared(rank, extents, block)
    }

    /// Creates the token ids of a micro-batch: `block` holds some of the rows of this rank's block, from row `first`
    /// on. They keep their index in the global batch, so dropout draws the same masks as without micro-batches.
    ///
    /// Ranks of a model axis have the same rows, so the first dim is not split:
    ///
    /// ```compile_fail
    /// # use meshwright::prelude::*;
    /// # dims! { Batch @ data, Seq }
    /// fn rows(rank: &Rank) -> Tokens<(Split<Batch, Tp>, Seq)> {
    ///     Tokens::from_rows(rank, &[8, 16], 0, &[0; 16])
    /// }
    /// # let _: fn(&Rank) -> Tokens<(Split<Batch, Tp>, Seq)> = rows;
    /// ```
    ///
    /// # Panics
    /// If `block` does not hold whole rows, or more than follow row `first`.
    #[track_caller]
    pub fn from_rows(rank: &Rank, sizes: &[usize], first: usize, block: &[u32]) -> Tokens<S>
    where
        S: Shape,
    {
        let (rank, extents) = rows_of_block::<S>(rank, sizes, first, block.len(), "tokens");
        Tokens::declared(&rank, extents, block)
    }

    /// Creates the token ids of a micro-batch of `whole` rows: some of the rows of this rank's block, from row `first`
    /// on. The rank takes its positions of them. The rows of a sequence that is whole on each rank are taken as they
    /// are.
    ///
    /// # Panics
    /// If `whole` does not hold whole rows, or more than follow row `first`.
    #[track_caller]
    pub fn from_whole_rows(rank: &Rank, sizes: &[usize], first: usize, whole: &[u32]) -> Tokens<S>
    where
        S: Shape,
    {
        Tokens::from_rows(rank, sizes, first, &Tokens::<S>::declared_rows(rank, sizes, whole))
    }

    /// Creates the token ids of micro-batch `index` of `count` of a global batch. `whole` holds this rank's rows of it,
    /// as `data::rows_of_rank` lists them, with all positions; this rank's positions are taken from them. A micro-batch
    /// has the same rows on every mesh. One of [`from_whole_rows`](Self::from_whole_rows) has the rows of each rank's
    /// block.
    ///
    /// Other tensors of the micro-batch are made on the [rank](Self::rank) of its tokens, by `from_block` or `from_fn`.
    ///
    /// # Panics
    /// If `whole` has other rows than the micro-batch has on this rank, and if `index` is not below `count`.
    #[track_caller]
    pub fn from_micro_batch(
        rank: &Rank,
        sizes: &[usize],
        [index, count]: [usize; 2],
        whole: &[u32],
    ) -> Tokens<S>
    where
        S: Shape,
    {
        let own = Tokens::<S>::declared_rows(rank, sizes, whole);
        let (rank, extents) =
            rows_of_micro_batch::<S>(rank, sizes, [index, count], own.len(), "tokens");
        Tokens::declared(&rank, extents, &own)
    }

    /// Returns this rank's positions of whole rows, which are declared the same on ranks with the same rows.
    #[track_caller]
    fn declared_rows<'a>(rank: &Rank, sizes: &[usize], whole: &'a [u32]) -> Cow<'a, [u32]>
    where
        S: Dims,
    {
        if S::VARIES != Tokens::<S>::VARIES_OF_ROWS {
            let name = || format!("whole rows of token ids shaped {}", shape_name(S::DIMS));
            let varies = Tokens::<S>::VARIES_OF_ROWS;
            rank.declared_values().note_elements(name, varies, Location::caller(), whole);
        }
        Tokens::<S>::own_positions(rank, sizes, whole)
    }

    /// Creates token ids whose element at `index` of the **global** tensor is `id(index)`: the same on every mesh. So
    /// labels and masks follow from global rows and positions:
    ///
    /// ```
    /// # use meshwright::prelude::*;
    /// # dims! { Batch @ data }
    /// /// The row of each sample among the rows of all ranks: its label in a contrastive loss.
    /// fn own_rows(rank: &Rank, batch: usize) -> Targets<(Batch,)> {
    ///     Targets::from_fn(rank, &[batch], |index| index[0] as u32)
    /// }
    /// ```
    ///
    /// # Panics
    /// If `sizes` has another length than `S`, or another call of `id` with the same index returns another id.
    #[track_caller]
    pub fn from_fn(rank: &Rank, sizes: &[usize], id: impl Fn(&[usize]) -> u32) -> Tokens<S>
    where
        S: Shape,
    {
        let extents = extents_of::<S>(rank, sizes);
        let block = block_by_index(&extents, id, |id| id);
        Tokens::declared(rank, extents, &block)
    }

    /// Returns the token `by` positions later in the row of each: `tokens.shifted(1)` are the targets of a model that
    /// predicts the next token. Where the row has none it is [`IGNORED`](Self::IGNORED).
    ///
    /// If ranks hold parts of the rows, as of a sequence declared `@ cp`, all of them call it: one small all-gather.
    #[track_caller]
    pub fn shifted(&self, by: isize) -> Targets<S> {
        self.rank().note_host_input();
        let sequence = *self.local_extents().last().expect("tokens have a sequence");
        let rows = self.gather_sequences();
        let ids = rows.chunks(sequence.global.max(1)).flat_map(|row| {
            sequence.positions().map(|place| {
                let shifted = place.checked_add_signed(by).and_then(|place| row.get(place));
                shifted.copied().unwrap_or(Self::IGNORED)
            })
        });
        let ids: Vec<u32> = ids.collect();
        Tokens::new(self.rank(), self.local_extents().to_vec(), &ids)
    }

    /// Returns the targets, without those for whose index in the **global** tensor `is_ignored` returns true: they are
    /// [`IGNORED`](Self::IGNORED), and count in no loss.
    ///
    /// ```
    /// # use meshwright::prelude::*;
    /// # dims! { Batch @ data, Seq @ cp }
    /// fn without_prompt(targets: &Targets<(Batch, Seq)>, prompt: usize) -> Targets<(Batch, Seq)> {
    ///     targets.ignored_where(|index| index[1] < prompt)
    /// }
    /// ```
    #[track_caller]
    pub fn ignored_where(&self, is_ignored: impl Fn(&[usize]) -> bool) -> Targets<S> {
        self.rank().note_host_input();
        let extents = self.local_extents();
        let ignored = block_by_index(extents, |index| u32::from(is_ignored(index)), |flag| flag);
        let ids = self.on_host().iter().zip(ignored);
        let ids: Vec<u32> =
            ids.map(|(id, flag)| if flag == 1 { Self::IGNORED } else { *id }).collect();
        Tokens::declared(self.rank(), extents.to_vec(), &ids)
    }

    /// Gathers the whole rows of this rank's block from the ranks that hold parts of them.
    #[track_caller]
    fn gather_sequences(&self) -> Vec<u32> {
        let mut dims = S::DIMS.to_vec();
        let (_, rows) = dims.split_last_mut().expect("tokens have a sequence");
        for dim in rows {
            *dim = DimInfo { split: AxisSet::NONE, home: AxisSet::NONE, ..*dim };
        }
        let bits = self.on_host().iter().map(|id| f32::from_bits(*id)).collect();
        let whole = gather_block(self.rank(), &dims, self.local_extents(), bits);
        whole.into_iter().map(f32::to_bits).collect()
    }

    /// Returns this rank's positions of whole rows.
    #[track_caller]
    pub(crate) fn own_positions<'a>(
        rank: &Rank,
        sizes: &[usize],
        whole: &'a [u32],
    ) -> Cow<'a, [u32]>
    where
        S: Dims,
    {
        let extents = extents_of::<S>(&rank.with_whole_batch(), sizes);
        let [_, .., sequence] = &extents[..] else { return Cow::Borrowed(whole) };
        assert!(
            whole.len().is_multiple_of(sequence.global.max(1)),
            "{} tokens are not whole rows of {} tokens",
            whole.len(),
            sequence.global
        );
        if rank.leaves_out_numbers(whole.len()) {
            let len = whole.len() / sequence.global.max(1) * sequence.local;
            return Cow::Borrowed(&whole[..len]);
        }
        Cow::Owned(sequence.of_rows(whole))
    }

    /// Creates token ids that are declared the same on ranks with equal positions along the axes of `S`.
    #[track_caller]
    pub(super) fn declared(rank: &Rank, extents: Vec<Extent>, block: &[u32]) -> Tokens<S>
    where
        S: Dims,
    {
        let name = || format!("token ids shaped {}", shape_name(S::DIMS));
        rank.declared_values().note_elements(name, S::VARIES, Location::caller(), block);
        rank.segments().note_numbers(block);
        Tokens::new(rank, extents, block)
    }
}

impl<S: Dims> Tokens<S> {
    /// Creates the position of each token in its sequence, the last of these dims.
    pub(crate) fn token_positions(rank: &Rank, extents: &[Extent]) -> Tokens<S> {
        let (sequence, rows) = extents.split_last().expect("tokens have a sequence");
        let len = local_len(extents);
        if rank.leaves_out_numbers(len) {
            return Tokens::new(rank, extents.to_vec(), &rank.zeros(len)[..len]);
        }
        let places = sequence.positions().map(|place| place as u32);
        let ids = (0..local_len(rows)).flat_map(|_| places.clone());
        let ids: Vec<u32> = ids.collect();
        Tokens::new(rank, extents.to_vec(), &ids)
    }

    /// Returns as many ids that are 0.
    pub(crate) fn zeros(&self) -> Tokens<S> {
        let (rank, len) = (self.rank(), self.on_host().len());
        Tokens::new(rank, self.local_extents().to_vec(), &rank.zeros(len)[..len])
    }

    /// Returns the local extent of each dim.
    pub fn local_extents(&self) -> &[Extent] {
        self.ids.extents()
    }

    /// Returns the number of elements of each dim of the global tensor.
    pub fn sizes(&self) -> Vec<usize> {
        global_sizes(self.local_extents())
    }

    /// Returns the rank that holds the block.
    pub fn rank(&self) -> &Rank {
        self.ids.rank()
    }

    /// Copies the ids of this rank's block, row-major.
    pub fn to_local_vec(&self) -> Vec<u32> {
        self.rank().note_host_input();
        self.on_host().to_vec()
    }

    pub(crate) fn id_buffer(&self) -> &Arc<Buffer> {
        self.ids.on_device()
    }

    /// Returns the ids on the host.
    pub(crate) fn on_host(&self) -> &[u32] {
        self.ids.on_host()
    }

    /// Returns the ids on the host for a check of each; none if a dry run leaves them out.
    pub(crate) fn ids_to_check(&self) -> &[u32] {
        let ids = self.on_host();
        if self.rank().leaves_out_numbers(ids.len()) { &[] } else { ids }
    }

    /// Returns the number of ids that are not [`IGNORED`](Self::IGNORED).
    pub(crate) fn target_count(&self) -> u64 {
        let len = self.on_host().len();
        if self.rank().leaves_out_numbers(len) {
            return len as u64;
        }
        self.on_host().iter().filter(|id| **id != Self::IGNORED).count() as u64
    }

    /// Returns 0 for ids that are [`IGNORED`](Self::IGNORED), 1 for the others, in f32; created by the first call.
    pub(crate) fn counted_targets(&self) -> &Arc<Buffer> {
        self.ids.counted()
    }

    /// Returns the ids without the type of their dims.
    pub(super) fn untyped(&self) -> &TokenIds {
        &self.ids
    }

    /// Creates token ids whose dims the caller guarantees.
    pub(super) fn of_untyped(ids: TokenIds) -> Tokens<S> {
        Tokens { ids, shape: PhantomData }
    }

    fn new(rank: &Rank, extents: Vec<Extent>, block: &[u32]) -> Tokens<S> {
        Tokens { ids: TokenIds::new(rank, extents, block), shape: PhantomData }
    }
}

impl<S: Dims> Clone for Tokens<S> {
    fn clone(&self) -> Self {
        Tokens { ids: self.ids.clone(), shape: PhantomData }
    }
}

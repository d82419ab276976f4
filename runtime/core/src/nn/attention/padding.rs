//! Padding masks: the keys that each sample has.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use crate::layout::{Dim, Internal, Seal, Shape};
use crate::tensor::{Mask, Part, PartKind, Rank, SegmentData, Tensor, Tokens, VisibleRows};
use meshwright_backend::{Buffer, Category};

use super::extras::{AttentionExtra, Extras, KeysOfQueries};

/// The valid positions of each sample of `S`, which is `(Batch, Seq)`: an optional operand of attention whose keys are
/// shaped `(Batch, Seq, ..)`. No query attends to keys that are padding.
///
/// Queries at positions that are padding attend to the valid keys like others; the loss ignores them
/// ([`Targets::IGNORED`](crate::tensor::Tokens::IGNORED)).
pub struct Padding<S: PaddedShape> {
    starts: Tokens<S::Rows>,
    ends: Tokens<S::Rows>,
    /// Beginnings and ends of the keys of each query of a sample, u32 `[batch, queries]`, which are the same for all
    /// layers.
    ranges: Rc<PerLength<[Arc<Buffer>; 2]>>,
    /// The same for the queries of whole rows, if ranks share them.
    rows: Rc<PerLength<Rc<VisibleRows>>>,
    shape: PhantomData<S>,
}

/// Values for sequences of different numbers of queries, each computed once.
struct PerLength<T>(RefCell<Vec<(usize, T)>>);

impl<T> Default for PerLength<T> {
    fn default() -> Self {
        PerLength(RefCell::default())
    }
}

impl<T: Clone> PerLength<T> {
    /// Returns the value for `queries` queries, which `create` computes the first time.
    fn get_or_create(&self, queries: usize, create: impl FnOnce() -> T) -> T {
        let known = self.0.borrow().iter().find(|(of, _)| *of == queries).map(|(_, x)| x.clone());
        known.unwrap_or_else(|| {
            let value = create();
            self.0.borrow_mut().push((queries, value.clone()));
            value
        })
    }
}

/// A shape with padding: samples and a sequence, `(Batch, Seq)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a shape of samples with padding",
    label = "padding is that of `(Batch, Seq)`, a dim of samples and a sequence"
)]
pub trait PaddedShape: 'static {
    /// The shape of one number per sample.
    type Rows: Shape;
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<B: Dim, T: Dim> PaddedShape for (B, T)
where
    (B,): Shape,
{
    type Rows = (B,);
    const SEAL: Seal = Seal::new();
}

impl<S: PaddedShape> Padding<S> {
    /// Creates the padding of this rank's samples: `valid` holds the range of valid positions of each of them. `batch`
    /// is the **global** number of samples.
    ///
    /// # Panics
    /// If `valid` has another length than this rank's share of `batch`, or a range ends before it begins.
    #[track_caller]
    pub fn from_block(rank: &Rank, batch: usize, valid: &[Range<usize>]) -> Padding<S> {
        let [starts, ends] = ends_of(valid);
        let starts = Tokens::from_block(rank, &[batch], &starts);
        Padding::of_tokens(starts, Tokens::from_block(rank, &[batch], &ends))
    }

    /// Creates the padding of a micro-batch: `valid` holds the ranges of some of this rank's samples, from its sample
    /// `first` on, as [`Tokens::from_rows`] does.
    ///
    /// # Panics
    /// If there are more ranges than samples after `first`, or a range ends before it begins.
    #[track_caller]
    pub fn from_rows(
        rank: &Rank,
        batch: usize,
        first: usize,
        valid: &[Range<usize>],
    ) -> Padding<S> {
        let [starts, ends] = ends_of(valid);
        let starts = Tokens::from_rows(rank, &[batch], first, &starts);
        Padding::of_tokens(starts, Tokens::from_rows(rank, &[batch], first, &ends))
    }

    /// Creates the padding of samples whose valid positions are the first ones: `lengths` of them.
    pub fn of_lengths(lengths: &Tokens<S::Rows>) -> Padding<S> {
        Padding::of_tokens(lengths.zeros(), lengths.clone())
    }

    /// Returns the mask of the valid positions of sequences of `seq` positions, such as for a mean over them,
    /// [`Tensor::mean_where`].
    ///
    /// ```
    /// # use meshwright::prelude::*;
    /// # dims! { Batch @ data, Seq, Hidden }
    /// fn mean(x: &Tensor<(Batch, Seq, Hidden)>, padding: &Padding<(Batch, Seq)>) -> Tensor<(Batch, Hidden)> {
    ///     let seq = x.sizes()[1];
    ///     x.mean_where(Seq, &padding.valid(seq))
    /// }
    /// ```
    #[track_caller]
    pub fn valid(&self, seq: usize) -> Mask<S>
    where
        S: Shape,
    {
        let rank = self.starts.rank();
        let samples = self.starts.local_extents()[0];
        let positions = Tensor::<S>::extents(rank, &[samples.global, seq])[1];
        let [starts, ends] = [&self.starts, &self.ends].map(read_on_host);
        let flags = starts.iter().zip(ends).flat_map(|(start, end)| {
            let is_valid = move |position: usize| (*start..*end).contains(&(position as u32));
            positions.positions().map(move |position| f32::from(is_valid(position)))
        });
        let flags: Vec<f32> = flags.collect();
        Tensor::<S>::declared(rank, vec![samples, positions], &flags).ne(0.0)
    }

    fn of_tokens(starts: Tokens<S::Rows>, ends: Tokens<S::Rows>) -> Padding<S> {
        Padding { starts, ends, ranges: Rc::default(), rows: Rc::default(), shape: PhantomData }
    }

    /// Returns the range of keys of each of `queries` queries of a sample.
    fn ranges(&self, rank: &Rank, queries: usize) -> [Arc<Buffer>; 2] {
        let upload = |positions: Vec<u32>| {
            Arc::new(rank.allocator().copy_of(&positions, Category::Activations))
        };
        self.ranges.get_or_create(queries, || self.of_each(queries).map(upload))
    }

    /// Returns the positions that the query of each of `seq` positions of a sample sees.
    fn rows(&self, seq: usize) -> Rc<VisibleRows> {
        self.rows.get_or_create(seq, || {
            let [starts, ends] = self.of_each(seq);
            Rc::new(VisibleRows::new(seq, starts, ends))
        })
    }

    /// Returns starts and ends of the valid positions, for each of `queries` queries of each sample.
    fn of_each(&self, queries: usize) -> [Vec<u32>; 2] {
        [&self.starts, &self.ends].map(|positions| {
            read_on_host(positions)
                .iter()
                .flat_map(|position| (0..queries).map(|_| *position))
                .collect()
        })
    }

    /// Checks that the samples match the keys, and that their valid positions are keys.
    #[track_caller]
    fn check_samples(&self, extras: &Extras<'_>) {
        let (samples, keys) = (self.starts.local_extents()[0], extras.keys[0]);
        assert!(
            samples == keys,
            "`{}`: the padding is that of {} samples, {} of them here from {} on, but the keys have {}, {} of them \
             here from {} on",
            extras.path,
            samples.global,
            samples.local,
            samples.offset,
            keys.global,
            keys.local,
            keys.offset
        );
        let positions = extras.keys[1].global;
        let longest = self.ends.on_host().iter().max().map_or(0, |end| *end as usize);
        assert!(
            longest <= positions,
            "`{}`: valid positions of the padding end at {longest}, but the keys have {positions} positions",
            extras.path
        );
    }
}

impl<S: PaddedShape> Clone for Padding<S> {
    fn clone(&self) -> Self {
        let (ranges, rows) = (Rc::clone(&self.ranges), Rc::clone(&self.rows));
        Padding { ranges, rows, ..Padding::of_tokens(self.starts.clone(), self.ends.clone()) }
    }
}

/// Shapes of padding of keys shaped `(B, T, ..)`.
#[diagnostic::on_unimplemented(
    message = "the padding belongs to `{Self}`, but the keys to `({B}, {T})`",
    label = "mismatched padding (the fourth element)",
    note = "padding hides keys: in cross attention it is that of the keys' sequence"
)]
pub trait PaddingOf<B, T> {
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<B, T> PaddingOf<B, T> for (B, T) {
    const SEAL: Seal = Seal::new();
}

impl<P, Q, B, T, H, D> AttentionExtra<Q, (B, T, H, D)> for Padding<P>
where
    P: PaddedShape + PaddingOf<B, T>,
{
    type First = KeysOfQueries;
    type Last = KeysOfQueries;
    const SEAL: Seal = Seal::new();

    #[track_caller]
    fn add_to_extras<'a>(&'a self, extras: &mut Extras<'a>) {
        extras.rank.check_same(self.starts.rank());
        self.check_samples(extras);
        let (queries, keys) = (&extras.queries[1], &extras.keys[1]);
        // Also in cross attention of queries that ranks share.
        if keys.local == keys.global {
            extras.ranges = Some(self.ranges(extras.rank, queries.local));
        } else {
            extras.visible = Some(self.rows(queries.global));
        }
    }
}

#[diagnostic::do_not_recommend]
impl<S: PaddedShape> SegmentData for Padding<S> {
    fn add_part_kinds(kinds: &mut Vec<PartKind>, _: Internal) {
        <(Tokens<S::Rows>, Tokens<S::Rows>)>::add_part_kinds(kinds, Internal::new());
    }

    fn add_parts(&self, parts: &mut Vec<Part>, _: Internal) {
        self.starts.add_parts(parts, Internal::new());
        self.ends.add_parts(parts, Internal::new());
    }

    fn from_parts(next: &mut dyn FnMut() -> Part, _: Internal) -> Padding<S> {
        let (starts, ends) = SegmentData::from_parts(next, Internal::new());
        Padding::of_tokens(starts, ends)
    }
}

/// Returns numbers of samples on the host, from which a captured graph could not compute others.
fn read_on_host<S: Shape>(numbers: &Tokens<S>) -> &[u32] {
    numbers.rank().note_host_input();
    numbers.on_host()
}

/// Returns the beginnings and the ends of `valid`.
#[track_caller]
fn ends_of(valid: &[Range<usize>]) -> [Vec<u32>; 2] {
    if let Some(range) = valid.iter().find(|range| range.end < range.start) {
        panic!("valid positions {range:?} end before they begin");
    }
    let position = |position: usize| u32::try_from(position).expect("positions are less than 2^32");
    let starts = valid.iter().map(|range| position(range.start)).collect();
    [starts, valid.iter().map(|range| position(range.end)).collect()]
}

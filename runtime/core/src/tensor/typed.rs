//! Typed tensors: the type describes the global tensor, the value holds this rank's block.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::Location;

use crate::autograd::{Unary, Value, tensor_parallel};
use crate::context::{Rank, block_index, extents_of, gather_block, scope};
use crate::fsdp::ParamRef;
use crate::layout::{Axis, Dims, GatherDim, Shape, SplitDim, refuse_routed};
use meshwright_backend::{DropoutMask, UnaryFunction};
use meshwright_comm::Site;
use meshwright_mesh::__internal::{global_sizes, local_len, shape_name};
use meshwright_mesh::Extent;

use super::block_by_index::block_by_index;
use super::draw_key::draw_key;
use super::row_range::{rows_of_block, rows_of_micro_batch};

/// A tensor shaped `S`: `Tensor<(Batch, Seq, Split<Ffn, Tp>)>`. The type describes the global tensor and how it is
/// split; the value holds this rank's block, row-major, in the rank's compute dtype. A clone shares the numbers.
pub struct Tensor<S: Dims> {
    value: Value,
    shape: PhantomData<S>,
}

impl<S: Dims> Clone for Tensor<S> {
    fn clone(&self) -> Self {
        Tensor { value: self.value.clone(), shape: PhantomData }
    }
}

/// Input of a layer: a tensor, as opposed to a partial sum or a result in flight.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tensor, so this cannot take it",
    label = "not a tensor",
    note = "a partial sum becomes a tensor by `.all_reduce()` or `.reduce_scatter(Dim)`, the result of an asynchronous \
            collective by `.wait()`",
    note = "a parameter is combined with a tensor in `x + &param`, `x * &param` or `x.contract(&param)`",
    note = "an `Option` is opened first; numbers become a tensor by `Tensor::from_block(rank, &sizes, &block)`"
)]
pub trait Operand {
    /// Shape of the tensor.
    type Shape: Dims;
    #[doc(hidden)]
    fn operand(&self) -> &Tensor<Self::Shape>;
}

#[diagnostic::do_not_recommend]
impl<S: Dims> Operand for Tensor<S> {
    type Shape = S;

    fn operand(&self) -> &Tensor<S> {
        self
    }
}

impl<S: Dims> Tensor<S> {
    /// Creates a tensor from this rank's block, row-major. `sizes` are the sizes of the **global** dims.
    ///
    /// No gradient flows into it.
    ///
    /// # Panics
    /// If `block` has another number of elements than the rank's part of `sizes`.
    #[track_caller]
    pub fn from_block(rank: &Rank, sizes: &[usize], block: &[f32]) -> Tensor<S>
    where
        S: Shape,
    {
        let extents = extents_of::<S>(rank, sizes);
        assert_eq!(
            block.len(),
            local_len(&extents),
            "a block of {} elements is not this rank's block of {sizes:?}",
            block.len()
        );
        Tensor::declared(rank, extents, block)
    }

    /// Creates a tensor of a micro-batch: `block` holds some of the rows of this rank's block, from row `first` on.
    /// They keep their index in the global batch, as rows of [`Tokens::from_rows`](super::Tokens::from_rows) do.
    ///
    /// No gradient flows into it.
    ///
    /// # Panics
    /// If `block` does not hold whole rows, or more than follow row `first`.
    #[track_caller]
    pub fn from_rows(rank: &Rank, sizes: &[usize], first: usize, block: &[f32]) -> Tensor<S>
    where
        S: Shape,
    {
        let (rank, extents) = rows_of_block::<S>(rank, sizes, first, block.len(), "elements");
        Tensor::declared(&rank, extents, block)
    }

    /// Creates a tensor of micro-batch `index` of `count` of a global batch. `whole` holds this rank's rows of it, with
    /// all elements of the other dims; this rank's part is taken from them, as
    /// [`Tokens::from_micro_batch`](super::Tokens::from_micro_batch) does.
    ///
    /// No gradient flows into it.
    ///
    /// # Panics
    /// If `whole` has other rows than the micro-batch has on this rank, and if `index` is not below `count`.
    #[track_caller]
    pub fn from_micro_batch(
        rank: &Rank,
        sizes: &[usize],
        [index, count]: [usize; 2],
        whole: &[f32],
    ) -> Tensor<S>
    where
        S: Shape,
    {
        let part = extents_of::<S>(&rank.with_whole_batch(), sizes);
        let row: usize = sizes[1..].iter().product();
        assert!(
            whole.len().is_multiple_of(row.max(1)),
            "{} elements are not whole rows of {sizes:?}",
            whole.len()
        );
        let rows = whole.len() / row.max(1);
        let own: Cow<'_, [f32]> = if local_len(&part[1..]) == row {
            Cow::Borrowed(whole)
        } else {
            let mut extents = part;
            extents[0] = Extent::whole(rows);
            let place = |index: &[usize]| {
                index.iter().zip(&sizes[1..]).fold(0, |place, (at, size)| place * size + at)
            };
            let element = |index: &[usize]| whole[index[0] * row + place(&index[1..])];
            Cow::Owned(block_by_index(&extents, element, f32::to_bits))
        };
        let (rank, extents) =
            rows_of_micro_batch::<S>(rank, sizes, [index, count], own.len(), "elements");
        Tensor::declared(&rank, extents, &own)
    }

    /// Returns the extents of a tensor of these **global** sizes on a rank.
    pub(crate) fn extents(rank: &Rank, sizes: &[usize]) -> Vec<Extent> {
        extents_of::<S>(rank, sizes)
    }

    /// Creates a tensor that is declared the same on ranks with equal positions along the axes of `S`.
    #[track_caller]
    pub(crate) fn declared(rank: &Rank, extents: Vec<Extent>, block: &[f32]) -> Tensor<S>
    where
        S: Dims,
    {
        let name = || format!("a tensor shaped {}", shape_name(S::DIMS));
        rank.declared_values().note_elements(name, S::VARIES, Location::caller(), block);
        rank.segments().note_numbers(block);
        let mut data = rank.alloc_activation(block.len());
        rank.backend().cast(rank.stage_values(block).view(), data.view_mut());
        Tensor::from_untyped(Value::constant(rank, extents, data))
    }

    /// Creates a tensor whose element at `index` of the **global** tensor is `element(index)`: the same tensor on every
    /// mesh.
    ///
    /// No gradient flows into it. For random elements use [`normal`](Self::normal) and [`uniform`](Self::uniform): a
    /// generator that is shared by all elements would give each rank other numbers than one rank has.
    ///
    /// # Panics
    /// If `sizes` has another length than `S`, or another call of `element` with the same index returns another number.
    #[track_caller]
    pub fn from_fn(rank: &Rank, sizes: &[usize], element: impl Fn(&[usize]) -> f32) -> Tensor<S>
    where
        S: Shape,
    {
        let extents = extents_of::<S>(rank, sizes);
        let bits = |x: f32| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() };
        let block = block_by_index(&extents, element, bits);
        Tensor::from_block(rank, sizes, &block)
    }
}

impl<S: Dims> Tensor<S> {
    /// Returns the number of elements of each dim of the global tensor.
    pub fn sizes(&self) -> Vec<usize> {
        global_sizes(self.value.extents())
    }

    /// Returns the local extent of each dim. [`sizes`](Self::sizes) returns the sizes of the global tensor.
    pub fn local_extents(&self) -> &[Extent] {
        self.value.extents()
    }

    /// Copies this rank's block, row-major, to the host. [`gather_to_vec`](Self::gather_to_vec) returns the global
    /// tensor.
    pub fn to_local_vec(&self) -> Vec<f32> {
        self.rank().read(self.value.look().view())
    }

    /// Copies a range of this rank's block, row-major, to the host.
    #[doc(hidden)]
    pub fn range_to_vec(&self, range: Range<usize>) -> Vec<f32> {
        self.rank().read(self.value.peek().view().slice(range))
    }

    /// Gathers the global tensor, row-major, to the host of every rank; of a micro-batch, its rows on all ranks. All
    /// ranks of the axes that distribute a dim call it.
    #[track_caller]
    pub fn gather_to_vec(&self) -> Vec<f32> {
        const { refuse_routed::<S>() };
        gather_block(self.rank(), S::DIMS, self.local_extents(), self.to_local_vec())
    }

    /// Creates a tensor of the same shape and sizes, whose element at `index` of the global tensor is `element(index)`,
    /// as [`from_fn`](Self::from_fn) does: an operand that needs no annotation of its type. No gradient flows into it.
    ///
    /// # Panics
    /// If another call of `element` with the same index returns another number.
    #[track_caller]
    pub fn like(&self, element: impl Fn(&[usize]) -> f32) -> Tensor<S> {
        const { refuse_routed::<S>() };
        let bits = |x: f32| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() };
        let block = block_by_index(self.local_extents(), element, bits);
        Tensor::declared(self.rank(), self.local_extents().to_vec(), &block)
    }

    /// Returns the rank that holds the block.
    pub fn rank(&self) -> &Rank {
        self.value.rank()
    }

    /// Multiplies every element by `factor`.
    #[track_caller]
    pub fn scale(&self, factor: f32) -> Tensor<S> {
        note_number::<S>(self.rank(), "multiplied by", factor);
        self.apply_unary(Unary::Scale(factor))
    }

    /// Adds `number` to every element.
    #[track_caller]
    pub fn offset(&self, number: f32) -> Tensor<S> {
        note_number::<S>(self.rank(), "offset by", number);
        self.apply_unary(Unary::Offset(number))
    }

    /// Divides `number` by every element.
    #[track_caller]
    pub(super) fn divide_into(&self, number: f32) -> Tensor<S> {
        note_number::<S>(self.rank(), "a divisor of", number);
        let is_recip = number == 1.0;
        let op = Unary::DivideInto(number);
        self.apply_unary(if is_recip { Unary::Apply(UnaryFunction::Recip) } else { op })
    }

    /// Sets each element to zero with probability `rate` and divides the others by `1 - rate`.
    ///
    /// The mask is a function of the seed, the step, `name` and the element's index in the global tensor, so it is the
    /// same on every mesh. Outside training nothing happens.
    pub(crate) fn dropout(&self, name: &str, rate: f32) -> Tensor<S> {
        const { refuse_routed::<S>() };
        let rank = self.rank();
        if !rank.is_training() || rate == 0.0 {
            return Tensor::from_untyped(self.value.unchanged());
        }
        let key = draw_key(rank, name);
        let index = block_index(self.local_extents());
        self.apply_unary(Unary::Dropout(DropoutMask { key, rate, index }))
    }

    /// Makes a split dim whole on every rank: all-gather forward, own shard backward.
    ///
    /// Shape: `[.., Split<D, A>, ..] -> [.., D, ..]`.
    #[track_caller]
    pub fn gather<D, P>(&self, dim: D) -> Tensor<D::Out>
    where
        D: GatherDim<S, P>,
    {
        let _: D = dim;
        let site = Site::here(scope::current_or("Tensor::gather"));
        Tensor::from_untyped(tensor_parallel::gather_dim(
            self.value(),
            <D::Axis as Axis>::ID,
            D::DIM,
            &site,
        ))
    }

    /// Splits a whole dim over an axis: own shard forward, all-gather backward.
    ///
    /// Shape: `[.., D, ..] -> [.., Split<D, A>, ..]`.
    #[track_caller]
    pub fn slice<D, A: Axis, P>(&self, dim: D, axis: A) -> Tensor<D::Out>
    where
        D: SplitDim<S, A, P>,
    {
        let (_, _): (D, A) = (dim, axis);
        let site = Site::here(scope::current_or("Tensor::slice"));
        Tensor::from_untyped(tensor_parallel::slice_dim(self.value(), A::ID, D::DIM, &site))
    }

    pub(crate) fn apply_unary(&self, op: Unary) -> Tensor<S> {
        let pointwise = self.value.to_pointwise().unary(op);
        Tensor::from_untyped(Value::deferred(self.rank(), self.local_extents().to_vec(), pointwise))
    }

    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    pub(crate) fn from_untyped(value: Value) -> Tensor<S> {
        const { distinct_axes::<S>() };
        debug_assert_eq!(value.extents().len(), S::DIMS.len());
        Tensor { value, shape: PhantomData }
    }
}

impl<S: Dims> std::fmt::Debug for Tensor<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tensor(")?;
        for (position, (info, extent)) in S::DIMS.iter().zip(self.local_extents()).enumerate() {
            let comma = if position == 0 { "" } else { ", " };
            write!(f, "{comma}{info} = {} of {}", extent.local, extent.global)?;
        }
        f.write_str(")")
    }
}

/// Records a number that a tensor or partial sum shaped `S` is combined with, and that has to be the same on all ranks
/// that hold the same part.
#[track_caller]
pub(crate) fn note_number<S: Dims>(rank: &Rank, what: &str, number: f32) {
    let name = || format!("the number that a tensor shaped {} is {what}", shape_name(S::DIMS));
    rank.declared_values().note_number(name, S::VARIES, Location::caller(), number);
    rank.segments().note_numbers(&[number]);
}

/// Compiles if no axis distributes two dims of `S`.
const fn distinct_axes<S: Dims>() {
    let _ = S::VARIES;
}

/// A parameter shaped `S`. As a field of a model it can be sharded: `#[sharded(tp = "col")] up: Param<(Hidden, Ffn)>`.
pub struct Param<S> {
    param: ParamRef,
    shape: PhantomData<S>,
}

impl<S: Dims> Param<S> {
    pub(crate) fn new(param: ParamRef) -> Param<S> {
        Param { param, shape: PhantomData }
    }

    /// Returns the handle of the parameter: its name, place and values.
    pub fn handle(&self) -> &ParamRef {
        &self.param
    }
}

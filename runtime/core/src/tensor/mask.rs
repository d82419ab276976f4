//! Masks: true or false for each element of a tensor.

use std::marker::PhantomData;
use std::ops::{BitAnd, BitOr, Not};
use std::panic::Location;

use crate::autograd::{Binary, Pointwise, Value};
use crate::context::{Rank, elements_along, scope};
use crate::layout::{Dims, Internal, SameShape, SumOver};
use meshwright_backend::{Comparison, DType};
use meshwright_comm::Site;
use meshwright_mesh::__internal::shape_name;
use meshwright_mesh::Extent;

use super::Tensor;
use super::broadcast::{Side, meet};
use super::combine::{Combined, apply_binary};
use super::reduce::{SumState, Summed};
use super::typed::note_number;

/// True or false for each element of a tensor shaped `S`, from a comparison such as `x.gt(0.0)`, or from positions, as
/// [`causal`](Mask::causal). It has no gradient, and is no tensor, so it cannot be added by mistake.
///
/// Masks are combined by `&`, `|` and `!`. They are part of the kernel that reads them, and not stored.
///
/// ```
/// # use meshwright::prelude::*;
/// # dims! { Batch @ data, Seq, Hidden }
/// fn clipped(x: &Tensor<(Batch, Seq, Hidden)>, limit: &Tensor<(Batch, Seq)>) -> Tensor<(Batch, Seq, Hidden)> {
///     let large = x.gt(limit) & !x.gt(100.0);
///     large.choose(&(x * 0.5), x)
/// }
/// ```
pub struct Mask<S: Dims> {
    value: Value,
    shape: PhantomData<S>,
}

impl<S: Dims> Clone for Mask<S> {
    fn clone(&self) -> Self {
        Mask { value: self.value.clone(), shape: PhantomData }
    }
}

impl<S: Dims> Mask<S> {
    pub(super) fn from_untyped(value: Value) -> Mask<S> {
        Mask { value, shape: PhantomData }
    }

    /// Returns the rank that holds the block.
    pub fn rank(&self) -> &Rank {
        self.value.rank()
    }

    /// Returns a tensor of ones for true and zeros for false. No gradient flows into it.
    pub fn as_weights(&self) -> Tensor<S> {
        Tensor::from_untyped(self.value.clone())
    }

    /// Returns the number of true elements along a dim, as a sum does: a partial sum if the dim is split or
    /// distributed.
    ///
    /// Means of chosen elements are [`x.mean_where(Dim, &mask)`](Tensor::mean_where), which divides by exact numbers of
    /// any size.
    ///
    /// # Panics
    /// In bf16, if the dim has more than 256 elements, since larger numbers are not exact:
    /// `mask.as_weights().sum(Dim)` rounds them.
    #[track_caller]
    pub fn count<D, P>(&self, dim: D) -> Summed<S, D, P>
    where
        S: SumOver<D, P>,
        S::PartialOver: SumState<S::Left>,
    {
        let weights = self.as_weights();
        check_counts_are_exact(&weights, &<S as SumOver<D, P>>::positions(Internal::new()));
        weights.sum(dim)
    }

    /// Returns the elements of `chosen` if the mask is true, and those of `other` elsewhere. The three may have
    /// different dims, if one of them has those of all.
    ///
    /// An element that is not chosen has a gradient of 0, even if its derivative is infinite or NaN, as that of the
    /// square root of 0, provided that it is computed by elementwise operations on what both read.
    ///
    /// # Panics
    /// If they have a dim with other sizes.
    #[track_caller]
    pub fn choose<A, B>(
        &self,
        chosen: &Tensor<A>,
        other: &Tensor<B>,
    ) -> Tensor<Combined<S, Combined<A, B>>>
    where
        A: Dims + SameShape<B>,
        B: Dims,
        S: SameShape<Combined<A, B>>,
        Combined<A, B>: Dims,
        Combined<S, Combined<A, B>>: Dims,
    {
        type Both<A, B> = Combined<A, B>;
        let both = <Both<A, B> as Dims>::VARIES;
        let sides = [
            Side::new(chosen.value(), A::DIMS, <A as SameShape<B>>::LEFT_PLACES),
            Side::new(other.value(), B::DIMS, <A as SameShape<B>>::RIGHT_PLACES),
        ];
        let axes = [both.difference(A::VARIES), both.difference(B::VARIES)];
        let (rank, extents, branches) = meet(sides, axes);
        let branches = branches.map(|branch| Value::deferred(&rank, extents.clone(), branch));
        let varies = <Combined<S, Both<A, B>> as Dims>::VARIES;
        let places =
            (<S as SameShape<Both<A, B>>>::LEFT_PLACES, <S as SameShape<Both<A, B>>>::RIGHT_PLACES);
        let with_mask = |branch| {
            let sides = [
                Side::new(&self.value, S::DIMS, places.0),
                Side::new(branch, <Both<A, B> as Dims>::DIMS, places.1),
            ];
            meet(sides, [varies.difference(S::VARIES), varies.difference(both)])
        };
        let (_, _, [_, other]) = with_mask(&branches[1]);
        let (rank, extents, [mask, chosen]) = with_mask(&branches[0]);
        Tensor::from_untyped(select(&rank, extents, mask, [chosen, other]))
    }
}

/// Refuses counts along dims with more elements than the compute dtype has exact numbers for.
#[track_caller]
fn check_counts_are_exact<S: Dims>(weights: &Tensor<S>, positions: &[usize]) {
    /// Larger integers are not exact in bf16.
    const MOST: usize = 256;
    let rank = weights.rank();
    if rank.compute_dtype() == DType::F32 {
        return;
    }
    let site = Site::new(scope::current_or("Mask::count")).at_location(Location::caller());
    let along = |position: &usize| {
        elements_along(&S::DIMS[*position], &weights.local_extents()[*position], rank, &site)
    };
    let elements: usize = positions.iter().map(along).product();
    let names: Vec<&str> = positions.iter().map(|position| S::DIMS[*position].name).collect();
    assert!(
        elements <= MOST,
        "`Mask::count` of {elements} elements along `{}` in {}, which has no exact numbers above {MOST}: \
         `x.mean_where(Dim, &mask)` divides by the exact number of elements, and `mask.as_weights().sum(Dim)` is \
         rounded",
        names.join("`, `"),
        rank.compute_dtype()
    );
}

/// Returns the elements of the first branch if the mask is not 0, and those of the second elsewhere.
pub(super) fn select(
    rank: &Rank,
    extents: Vec<Extent>,
    mask: Pointwise,
    branches: [Pointwise; 2],
) -> Value {
    let [chosen, mut other] = branches;
    if !Pointwise::fit_together(&[&mask, &chosen, &other]) {
        other = Pointwise::leaf(Value::deferred(rank, extents.clone(), other).unchanged_computed());
    }
    Value::deferred(rank, extents, mask.select(chosen, other))
}

/// A mask for tensors shaped `S`: one that [fits them](SameShape), or one by positions along two of their dims, at
/// places `P`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a mask for a tensor shaped `{S}`",
    label = "not a mask, or one of dims that the tensor does not have",
    note = "a mask comes from a comparison, `x.gt(0.0)`, or from positions, `Mask::causal(Seq, Keys)`; numbers become \
            one by `weights.ne(0.0)`"
)]
pub trait MaskOf<S, P> {
    /// The shape of what is masked.
    type Out: Dims;
    #[doc(hidden)]
    #[track_caller]
    fn replace_others(&self, tensor: &Tensor<S>, value: f32) -> Tensor<Self::Out>
    where
        S: Dims;
}

/// Place of a mask with dims of its own.
#[derive(Debug)]
pub struct ByShape;

#[diagnostic::do_not_recommend]
impl<S: Dims + SameShape<T>, T: Dims> MaskOf<S, ByShape> for Mask<T>
where
    Combined<S, T>: Dims,
{
    type Out = Combined<S, T>;

    fn replace_others(&self, tensor: &Tensor<S>, value: f32) -> Tensor<Self::Out> {
        let sides = [
            Side::new(tensor.value(), S::DIMS, <S as SameShape<T>>::LEFT_PLACES),
            Side::new(&self.value, T::DIMS, <S as SameShape<T>>::RIGHT_PLACES),
        ];
        let varies = <Combined<S, T> as Dims>::VARIES;
        let (rank, extents, [tensor, mask]) =
            meet(sides, [varies.difference(S::VARIES), varies.difference(T::VARIES)]);
        let branches = [tensor, Pointwise::number(value)];
        Tensor::from_untyped(select(&rank, extents, mask, branches))
    }
}

impl<S: Dims> Tensor<S> {
    /// Returns the elements for which the mask is true, and `value` elsewhere, where no gradient flows.
    ///
    /// Shape: `[B, S, H], mask [B, S] -> [B, S, H]`, for a mask with the dims of the tensor or some of them.
    ///
    /// Attention by hand masks its scores so: `scores.masked(&Mask::causal(Seq, Keys), f32::NEG_INFINITY)`.
    ///
    /// # Panics
    /// If both have a dim with other sizes.
    #[track_caller]
    pub fn masked<M: MaskOf<S, P>, P>(&self, mask: &M, value: f32) -> Tensor<M::Out> {
        note_number::<S>(self.rank(), "replaced by", value);
        mask.replace_others(self, value)
    }
}

macro_rules! combined_masks {
    ($($operator:ident $method:ident $op:expr;)*) => {$(
        combined_masks! { @ $operator $method $op, Mask<S>, Mask<T> }
        combined_masks! { @ $operator $method $op, Mask<S>, &Mask<T> }
        combined_masks! { @ $operator $method $op, &Mask<S>, Mask<T> }
        combined_masks! { @ $operator $method $op, &Mask<S>, &Mask<T> }
    )*};
    (@ $operator:ident $method:ident $op:expr, $left:ty, $right:ty) => {
        impl<S: Dims + SameShape<T>, T: Dims> $operator<$right> for $left
        where
            Combined<S, T>: Dims,
        {
            type Output = Mask<Combined<S, T>>;

            #[track_caller]
            fn $method(self, right: $right) -> Self::Output {
                let combined = apply_binary(&self.as_weights(), &right.as_weights(), $op);
                Mask::from_untyped(combined.value().clone())
            }
        }
    };
}

combined_masks! {
    BitAnd bitand Binary::Min;
    BitOr bitor Binary::Max;
}

macro_rules! inverted_masks {
    ($($mask:ty),*) => {$(
        impl<S: Dims> Not for $mask {
            type Output = Mask<S>;

            fn not(self) -> Mask<S> {
                let (rank, extents) = (self.value.rank(), self.value.extents().to_vec());
                let is_zero = Binary::Compare(Comparison::Eq);
                let inverted = self.value.to_pointwise().with_number(0.0, is_zero);
                Mask::from_untyped(Value::deferred(rank, extents, inverted))
            }
        }
    )*};
}

inverted_masks! { Mask<S>, &Mask<S> }

impl<S: Dims> std::fmt::Debug for Mask<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mask({})", shape_name(S::DIMS))
    }
}

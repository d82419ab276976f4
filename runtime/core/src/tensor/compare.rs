//! Larger and smaller elements of two tensors, and comparisons, whose result is a mask.

use crate::autograd::{Binary, Value};
use crate::layout::{AxisGroup, Dims, SameShape};
use meshwright_backend::Comparison;

use super::broadcast::{Side, meet};
use super::combine::{Combined, Moved, TakenByValue, TakesValues};
use super::in_flight::Arrived;
use super::mask::Mask;
use super::operators::Right;
use super::typed::note_number;
use super::{InFlight, Partial, Tensor};

/// Elementwise comparison of a tensor `Self` with a tensor that [fits it](SameShape), or a number.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be compared with `{R}`",
    label = "not a tensor or an `f32`",
    note = "a parameter is compared as a tensor: `x.maximum(&self.floor.tensor())`"
)]
pub trait Compared<R>: Sized {
    /// The shape of the result.
    type Out: Dims;
    #[doc(hidden)]
    #[track_caller]
    fn compared(&self, right: &R, relation: Relation) -> Tensor<Self::Out>;
}

/// The relation of two elements that an operation computes.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub enum Relation {
    /// The larger one.
    Larger,
    /// The smaller one.
    Smaller,
    /// 1 if they compare so, else 0.
    Holds(Comparison),
}

impl From<Relation> for Binary {
    fn from(relation: Relation) -> Binary {
        match relation {
            Relation::Larger => Binary::Max,
            Relation::Smaller => Binary::Min,
            Relation::Holds(comparison) => Binary::Compare(comparison),
        }
    }
}

impl<S: Dims + SameShape<T>, T: Dims> Compared<Tensor<T>> for Tensor<S>
where
    Combined<S, T>: Dims,
{
    type Out = Combined<S, T>;

    #[track_caller]
    fn compared(&self, right: &Tensor<T>, relation: Relation) -> Tensor<Self::Out> {
        let sides = [
            Side::new(self.value(), S::DIMS, <S as SameShape<T>>::LEFT_PLACES),
            Side::new(right.value(), T::DIMS, <S as SameShape<T>>::RIGHT_PLACES),
        ];
        let varies = <Combined<S, T> as Dims>::VARIES;
        let (rank, extents, [left, right]) =
            meet(sides, [varies.difference(S::VARIES), varies.difference(T::VARIES)]);
        Tensor::from_untyped(Value::deferred(&rank, extents, left.binary(right, relation.into())))
    }
}

#[diagnostic::do_not_recommend]
impl<S: Dims> Compared<f32> for Tensor<S> {
    type Out = S;

    #[track_caller]
    fn compared(&self, right: &f32, relation: Relation) -> Tensor<S> {
        note_number::<S>(self.rank(), "compared with", *right);
        let pointwise = self.value().to_pointwise().with_number(*right, relation.into());
        let extents = self.local_extents().to_vec();
        Tensor::from_untyped(Value::deferred(self.rank(), extents, pointwise))
    }
}

macro_rules! never_compared {
    ($(<$($param:ident $(: $bound:ident)?),+> $right:ty; $reason:ty: $rule:ident;)*) => {$(
        impl<S: Dims, $($param $(: $bound)?),*> Compared<$right> for Tensor<S>
        where
            $reason: $rule,
        {
            type Out = S;

            fn compared(&self, _: &$right, _: Relation) -> Tensor<S> {
                <$reason as $rule>::never_implemented()
            }
        }
    )*};
}

never_compared! {
    <T, A: AxisGroup> Partial<T, A>; A: TakesValues;
    <T> InFlight<T>; InFlight<T>: Arrived;
    <P> Moved<P>; P: TakenByValue;
}

/// The shape of a comparison of a tensor shaped `S` with the operand `R`.
type Out<S, R> = <Tensor<S> as Compared<<R as Right>::Value>>::Out;

impl<S: Dims> Tensor<S> {
    /// Returns the larger of each element and that of another tensor, which may have fewer dims, or a number. NaN if
    /// one of them is. If both are equal, each has half of the gradient.
    ///
    /// Shape: `[B, S, H], [B, S] -> [B, S, H]`, for any dims of the second tensor that the first one has, split alike.
    ///
    /// The largest element along a dim is `x.max(Dim)`.
    ///
    /// # Panics
    /// If both have a dim with other sizes.
    #[track_caller]
    pub fn maximum<R: Right>(&self, other: R) -> Tensor<Out<S, R>>
    where
        Tensor<S>: Compared<R::Value>,
    {
        self.compared(other.combined(), Relation::Larger)
    }

    /// Returns the smaller of each element and that of another operand, as [`maximum`](Self::maximum).
    ///
    /// Shape: `[B, S, H], [B, S] -> [B, S, H]`, for any dims of the second tensor that the first one has, split alike.
    #[track_caller]
    pub fn minimum<R: Right>(&self, other: R) -> Tensor<Out<S, R>>
    where
        Tensor<S>: Compared<R::Value>,
    {
        self.compared(other.combined(), Relation::Smaller)
    }
}

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident => $comparison:ident;)*) => {
        /// Comparisons with another tensor, which may have fewer dims, or a number. Those with NaN are false, but for
        /// `ne`.
        impl<S: Dims> Tensor<S> {$(
            $(#[$doc])*
            ///
            /// Shape: `[B, S, H], [B, S] -> mask [B, S, H]`, for a second tensor with the dims of the first one, or
            /// some of them.
            ///
            /// # Panics
            /// If both are tensors and have a dim with other sizes.
            #[track_caller]
            pub fn $name<R: Right>(&self, other: R) -> Mask<Out<S, R>>
            where
                Tensor<S>: Compared<R::Value>,
            {
                let relation = Relation::Holds(Comparison::$comparison);
                Mask::from_untyped(self.compared(other.combined(), relation).value().clone())
            }
        )*}
    };
}

comparisons! {
    /// Returns the mask of the elements that are greater than those of `other`.
    gt => Gt;
    /// Returns the mask of the elements that are greater than or equal to those of `other`.
    ge => Ge;
    /// Returns the mask of the elements that are less than those of `other`.
    lt => Lt;
    /// Returns the mask of the elements that are less than or equal to those of `other`.
    le => Le;
    /// Returns the mask of the elements that are equal to those of `other`.
    eq => Eq;
    /// Returns the mask of the elements that differ from those of `other`.
    ne => Ne;
}

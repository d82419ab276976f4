//! Dims that leave a shape by name, in any state, and what is left of it.

use super::sealed::Seal;
use super::{At, Axis, AxisGroup, Dim, Dims, Here, Split, SplitAxes, Whole};

/// A dim of shape `S`: whole, split or distributed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a dim of a tensor shaped `{S}`",
    label = "not one of the dims of `{S}`; a dim is named unsplit"
)]
pub trait TakeDim<S, P> {
    /// The dim with its split, as it is in `S`.
    type Taken: Dim;
    /// The other dims, in order.
    type Left: Dims;
    /// Position of the dim.
    const DIM: usize;
    #[doc(hidden)]
    const SEAL: Seal;
}

/// A dim of shape `S` whose elements can be added up, or one of them selected, each rank for those that it holds.
#[diagnostic::on_unimplemented(
    message = "no element or sum along `{Self}` can be taken from a tensor shaped `{S}`",
    label = "`{Self}` is not one of its dims, or is split over several axes, or both declared over an axis and split",
    note = "`.gather(Dim)` makes the split whole first"
)]
pub trait DropDim<S, P>: TakeDim<S, P> {
    /// The axes over which the result is partial: [`Here`] if each rank holds all of the dim.
    type PartialOver: AxisGroup;
}

macro_rules! take {
    ($(($($before:ident),*) ($($after:ident),*) at $position:literal)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* D: Whole, $($after: Dim,)*> TakeDim<($($before,)* D, $($after,)*), At<$position>> for D
        where
            ($($before,)* $($after,)*): Dims,
        {
            type Taken = D;
            type Left = ($($before,)* $($after,)*);
            const DIM: usize = $position;
            const SEAL: Seal = Seal::new();
        }
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* D: Whole, X: SplitAxes, $($after: Dim,)*>
            TakeDim<($($before,)* Split<D, X>, $($after,)*), At<$position>> for D
        where
            ($($before,)* $($after,)*): Dims,
        {
            type Taken = Split<D, X>;
            type Left = ($($before,)* $($after,)*);
            const DIM: usize = $position;
            const SEAL: Seal = Seal::new();
        }
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* D: Whole, $($after: Dim,)*> DropDim<($($before,)* D, $($after,)*), At<$position>> for D
        where
            ($($before,)* $($after,)*): Dims,
        {
            type PartialOver = D::Home;
        }
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* D: Whole<Home = Here>, X: Axis, $($after: Dim,)*>
            DropDim<($($before,)* Split<D, X>, $($after,)*), At<$position>> for D
        where
            ($($before,)* $($after,)*): Dims,
        {
            type PartialOver = X;
        }
    )*};
}

take! {
    () () at 0
    () (A) at 0  (A) () at 1
    () (A, B) at 0  (A) (B) at 1  (A, B) () at 2
    () (A, B, C) at 0  (A) (B, C) at 1  (A, B) (C) at 2  (A, B, C) () at 3
    () (A, B, C, E) at 0  (A) (B, C, E) at 1  (A, B) (C, E) at 2  (A, B, C) (E) at 3  (A, B, C, E) () at 4
}

/// The dims of `S` without `D`.
type Left<D, S, P> = <D as TakeDim<S, P>>::Left;

/// Several dims of shape `S` as a tuple, each once; `()` for none.
#[diagnostic::on_unimplemented(
    message = "`{Self}` are not dims of a tensor shaped `{S}`",
    label = "one of them is missing there, or named twice; dims are named unsplit"
)]
pub trait PickDims<S, P> {
    /// The dims with their splits, in the order of `Self`.
    type Picked: Dims;
    /// The other dims, in the order of `S`.
    type Left: Dims;
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<S: Dims> PickDims<S, ()> for () {
    type Picked = ();
    type Left = S;
    const SEAL: Seal = Seal::new();
}

macro_rules! pick {
    ($(($($dim:ident $place:ident of $shape:ty),+) leaves $left:ty;)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<S, $($dim, $place),+> PickDims<S, ($($place,)+)> for ($($dim,)+)
        where
            $($dim: TakeDim<$shape, $place>),+
        {
            type Picked = ($(<$dim as TakeDim<$shape, $place>>::Taken,)+);
            type Left = $left;
            const SEAL: Seal = Seal::new();
        }
    )*};
}

pick! {
    (A P of S) leaves Left<A, S, P>;
    (A P of S, B Q of Left<A, S, P>) leaves Left<B, Left<A, S, P>, Q>;
    (A P of S, B Q of Left<A, S, P>, C R of Left<B, Left<A, S, P>, Q>)
        leaves Left<C, Left<B, Left<A, S, P>, Q>, R>;
    (A P of S, B Q of Left<A, S, P>, C R of Left<B, Left<A, S, P>, Q>, D T of Left<C, Left<B, Left<A, S, P>, Q>, R>)
        leaves Left<D, Left<C, Left<B, Left<A, S, P>, Q>, R>, T>;
    (
        A P of S, B Q of Left<A, S, P>, C R of Left<B, Left<A, S, P>, Q>, D T of Left<C, Left<B, Left<A, S, P>, Q>, R>,
        E U of Left<D, Left<C, Left<B, Left<A, S, P>, Q>, R>, T>
    )
        leaves Left<E, Left<D, Left<C, Left<B, Left<A, S, P>, Q>, R>, T>, U>;
}

/// A tuple that names each dim of `S` once, unsplit: another order of them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an order of the dims of `{S}`",
    label = "name each dim of the tensor once, unsplit: a split dim stays split"
)]
pub trait PermuteDims<S, P> {
    /// The dims with their splits, in the order of `Self`.
    type Out: Dims;
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<S, N: PickDims<S, P, Left = ()>, P> PermuteDims<S, P> for N {
    type Out = N::Picked;
    const SEAL: Seal = Seal::new();
}

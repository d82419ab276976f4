//! Shapes of elements that are taken or added up by their index.

use super::sealed::Seal;
use super::{AxisGroup, AxisSet, Dims, DropDim, FollowedBy, Local, PickDims, TakeDim};

type Left<D, S, P> = <D as TakeDim<S, P>>::Left;
type Picked<B, S, P> = <B as PickDims<S, P>>::Picked;
type Others<B, S, P> = <B as PickDims<S, P>>::Left;
type Chained<S, T> = <S as FollowedBy<T>>::Out;

/// A dim of shape `S` whose elements can be taken by indices shaped `T`, for each element of the dims `B`.
#[diagnostic::on_unimplemented(
    message = "elements along `{Self}` cannot be taken from a tensor shaped `{S}` by indices shaped `{T}` for each \
               `{B}`",
    label = "`{Self}` is not one of its dims, or one of `{B}` is not in both, whole in both or split alike",
    note = "`.slice(Dim, Tp)` splits a whole dim, `.gather(Dim)` makes a split one whole; the result has at most five \
            dims"
)]
pub trait IndexedDims<S, T, B, P> {
    /// Each dim of `B`, then the others of `T`, then the others of `S`.
    type Out: Dims;
    /// The axes over which the result is partial.
    type PartialOver: AxisGroup;
    /// The axes whose regions the tensor enters.
    const ENTERS: AxisSet;
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<S, T, D, B, P, M, N> IndexedDims<S, T, B, (P, M, N)> for D
where
    S: Dims,
    T: Dims,
    D: DropDim<S, P>,
    B: PickDims<Left<D, S, P>, M> + PickDims<T, N, Picked = Picked<B, Left<D, S, P>, M>>,
    Picked<B, Left<D, S, P>, M>: FollowedBy<Others<B, T, N>>,
    Chained<Picked<B, Left<D, S, P>, M>, Others<B, T, N>>: FollowedBy<Others<B, Left<D, S, P>, M>>,
{
    type Out =
        Chained<Chained<Picked<B, Left<D, S, P>, M>, Others<B, T, N>>, Others<B, Left<D, S, P>, M>>;
    type PartialOver = <D as DropDim<S, P>>::PartialOver;
    const ENTERS: AxisSet = T::VARIES.difference(S::VARIES);
    const SEAL: Seal = Seal::new();
}

/// A dim over which elements of a tensor shaped `S` are added up by indices shaped `T` along dim `D`, for each element
/// of the dims `B`.
#[diagnostic::on_unimplemented(
    message = "a tensor shaped `{S}` cannot be added up over `{Self}` by indices of `{D}` shaped `{T}` for each `{B}`",
    label = "the indices have the dims `{B}` and `{Self}`, the tensor has them in the same state, and `{D}` is whole",
    note = "`.slice(Dim, Tp)` splits a whole dim, `.gather(Dim)` makes a split one whole; the result has at most five \
            dims"
)]
pub trait AddedDims<S, T, D, B, P> {
    /// Each dim of `B`, then `D`, then the others of `S`.
    type Out: Dims;
    /// The axes over which the result is partial.
    type PartialOver: AxisGroup;
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<S, T, F, D, B, P, Q, M, N> AddedDims<S, T, D, B, (P, Q, M, N)> for F
where
    D: Local,
    F: DropDim<S, P> + TakeDim<T, Q, Taken = <F as TakeDim<S, P>>::Taken>,
    B: PickDims<Left<F, S, P>, M>
        + PickDims<Left<F, T, Q>, N, Picked = Picked<B, Left<F, S, P>, M>, Left = ()>,
    Picked<B, Left<F, S, P>, M>: FollowedBy<(D,)>,
    Chained<Picked<B, Left<F, S, P>, M>, (D,)>: FollowedBy<Others<B, Left<F, S, P>, M>>,
{
    type Out = Chained<Chained<Picked<B, Left<F, S, P>, M>, (D,)>, Others<B, Left<F, S, P>, M>>;
    type PartialOver = <F as DropDim<S, P>>::PartialOver;
    const SEAL: Seal = Seal::new();
}

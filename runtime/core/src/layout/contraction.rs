//! Contraction of two shapes: dims that are summed over, dims that both keep, and the others of both.

use super::sealed::Seal;
use super::{
    AxisGroup, AxisSet, Cp, Data, Dims, Dp, DropDim, Ep, FollowedBy, Fsdp, Here, PickDims, Pp,
    TakeDim, Tp, Whole,
};

/// Axes that are joined with those of another dim: a sum is partial over the axes of one dim at most.
pub trait AlsoOver<A>: AxisGroup {
    /// The axes of both.
    type Both: AxisGroup;
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<A: AxisGroup> AlsoOver<A> for Here {
    type Both = A;
    const SEAL: Seal = Seal::new();
}

macro_rules! also_over {
    ($($axis:ident)*) => {$(
        impl AlsoOver<Here> for $axis {
            type Both = $axis;
            const SEAL: Seal = Seal::new();
        }
    )*};
}

also_over! { Data Pp Dp Fsdp Ep Cp Tp }

/// One dim of shape `S`, or a pair, that a product is summed over.
pub trait DropDims<S, P> {
    /// The dims with their splits.
    type Taken: Dims;
    /// The other dims, in order.
    type Left: Dims;
    /// The axes over which the sum is partial.
    type PartialOver: AxisGroup;
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<D: Whole + DropDim<S, P>, S, P> DropDims<S, (P,)> for D {
    type Taken = (<D as TakeDim<S, P>>::Taken,);
    type Left = <D as TakeDim<S, P>>::Left;
    type PartialOver = <D as DropDim<S, P>>::PartialOver;
    const SEAL: Seal = Seal::new();
}

#[diagnostic::do_not_recommend]
impl<D: DropDim<S, P>, E: DropDim<D::Left, Q>, S, P, Q> DropDims<S, (P, Q)> for (D, E)
where
    D::PartialOver: AlsoOver<E::PartialOver>,
{
    type Taken = (D::Taken, E::Taken);
    type Left = E::Left;
    type PartialOver = <D::PartialOver as AlsoOver<E::PartialOver>>::Both;
    const SEAL: Seal = Seal::new();
}

/// Dims over which tensors shaped `S` and `T` can be contracted for each element of the dims `B`: both have all of
/// these dims, in the same state.
#[diagnostic::on_unimplemented(
    message = "tensors shaped `{S}` and `{T}` cannot be contracted over `{Self}` for each `{B}`",
    label = "each of these dims must be in both, whole in both or split alike, and the result has at most five dims",
    note = "`.slice(Dim, Tp)` splits the whole one, `.gather(Dim)` makes the split one whole",
    note = "a dim that both have, but that means two things, is renamed in one: `.rename(Seq, Keys)`"
)]
pub trait DotDims<S, T, B, P> {
    /// Each dim of `B`, then the others of `S`, then the others of `T`.
    type Out: Dims;
    /// The axes over which the result is partial.
    type PartialOver: AxisGroup;
    /// The axes whose regions the left and the right operand enter.
    const ENTERS: [AxisSet; 2];
    #[doc(hidden)]
    const SEAL: Seal;
}

type Rest<C, S, P> = <C as DropDims<S, P>>::Left;
type Picked<B, S, P> = <B as PickDims<S, P>>::Picked;
type Others<B, S, P> = <B as PickDims<S, P>>::Left;
type Chained<S, T> = <S as FollowedBy<T>>::Out;

#[diagnostic::do_not_recommend]
impl<S, T, C, B, P, Q, M, N> DotDims<S, T, B, (P, Q, M, N)> for C
where
    S: Dims,
    T: Dims,
    C: DropDims<S, P> + DropDims<T, Q, Taken = <C as DropDims<S, P>>::Taken>,
    B: PickDims<Rest<C, S, P>, M>
        + PickDims<Rest<C, T, Q>, N, Picked = Picked<B, Rest<C, S, P>, M>>,
    Picked<B, Rest<C, S, P>, M>: FollowedBy<Others<B, Rest<C, S, P>, M>>,
    Chained<Picked<B, Rest<C, S, P>, M>, Others<B, Rest<C, S, P>, M>>:
        FollowedBy<Others<B, Rest<C, T, Q>, N>>,
{
    type Out = Chained<
        Chained<Picked<B, Rest<C, S, P>, M>, Others<B, Rest<C, S, P>, M>>,
        Others<B, Rest<C, T, Q>, N>,
    >;
    type PartialOver = <C as DropDims<S, P>>::PartialOver;
    const ENTERS: [AxisSet; 2] = [T::VARIES.difference(S::VARIES), S::VARIES.difference(T::VARIES)];
    const SEAL: Seal = Seal::new();
}

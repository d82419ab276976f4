//! Selecting a dim of a shape by its name, as types: sum, gather and split.

use super::sealed::{Internal, Seal};
use super::{
    ApartFrom, Axis, AxisGroup, Cp, Data, Dim, Dims, Dp, Ep, Fsdp, Here, Pp, Split, SplitAxes, Tp,
    Whole,
};

/// A position in a shape, inferred by the compiler.
#[derive(Debug)]
pub struct At<const POSITION: usize>;

/// A shape with dim `D`, whole or split, which can be summed over it; or with all dims of a pair or triple `D`. At most
/// one of several is split or distributed.
#[diagnostic::on_unimplemented(
    message = "a tensor shaped `{Self}` cannot be summed over `{D}`",
    label = "`{D}` is not one of its dims, or is both declared over an axis and split over another one",
    note = "a dim that is declared over an axis and split over another one is gathered first: `x.gather(Dim).sum(Dim)`",
    note = "several dims are summed over together, `x.mean((Seq, Hidden))`, or one after the other, the whole ones \
            first: `x.mean(Seq).mean(Hidden)`; a split dim, and one that is declared over an axis, leaves a partial \
            sum, which is reduced before another sum: `x.mean(Seq).mean(Batch).all_reduce()`"
)]
pub trait SumOver<D, P> {
    /// The remaining dims.
    type Left: Dims;
    /// The axes over which the sum is partial: [`Here`](super::Here) if it is complete.
    type PartialOver: AxisGroup;
    /// Position of the dim, of the first of several.
    const DIM: usize;
    #[doc(hidden)]
    const SEAL: Seal;

    /// Returns the positions of all dims that are summed over.
    #[doc(hidden)]
    fn positions(_: Internal) -> Vec<usize> {
        vec![<Self as SumOver<D, P>>::DIM]
    }
}

/// The axes over which one of two sums is partial, and the other one complete.
#[diagnostic::on_unimplemented(
    message = "a sum over two dims cannot be partial over both `{Self}` and `{B}`",
    label = "one of the dims has to be whole on each rank",
    note = "sum over one of them and reduce it before the other: `x.sum(Seq).all_reduce().sum(Batch).all_reduce()`"
)]
pub trait OneOf<B> {
    /// The axes of both.
    type Axes: AxisGroup;
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<B: AxisGroup> OneOf<B> for Here {
    type Axes = B;
    const SEAL: Seal = Seal::new();
}

macro_rules! one_of {
    ($($axes:ident)*) => {$(
        #[diagnostic::do_not_recommend]
        impl OneOf<Here> for $axes {
            type Axes = $axes;
            const SEAL: Seal = Seal::new();
        }
    )*};
}

one_of! { Data Pp Dp Fsdp Ep Cp Tp }

/// [`SumOver`] of one dim. Sums over several are made of it: an impl of `SumOver` that is made of `SumOver` would have
/// no end while the dims are unknown.
#[doc(hidden)]
pub trait SumOverOne<D, P> {
    type Left: Dims;
    type PartialOver: AxisGroup;
    const DIM: usize;
    const SEAL: Seal;
}

type LeftBy<S, D, P> = <S as SumOverOne<D, P>>::Left;
type AxesBy<S, D, P> = <S as SumOverOne<D, P>>::PartialOver;
type AxesOfBoth<A, B> = <A as OneOf<B>>::Axes;

#[diagnostic::do_not_recommend]
impl<S, D, E, P, Q> SumOver<(D, E), (P, Q)> for S
where
    S: SumOverOne<D, P, Left: SumOverOne<E, Q>>,
    AxesBy<S, D, P>: OneOf<AxesBy<LeftBy<S, D, P>, E, Q>>,
{
    type Left = LeftBy<LeftBy<S, D, P>, E, Q>;
    type PartialOver = AxesOfBoth<AxesBy<S, D, P>, AxesBy<LeftBy<S, D, P>, E, Q>>;
    const DIM: usize = <S as SumOverOne<D, P>>::DIM;
    const SEAL: Seal = Seal::new();

    fn positions(_: Internal) -> Vec<usize> {
        in_whole_shape(&[<S as SumOverOne<D, P>>::DIM, <LeftBy<S, D, P> as SumOverOne<E, Q>>::DIM])
    }
}

#[diagnostic::do_not_recommend]
impl<S, D, E, F, P, Q, R> SumOver<(D, E, F), (P, Q, R)> for S
where
    S: SumOverOne<D, P, Left: SumOverOne<E, Q, Left: SumOverOne<F, R>>>,
    AxesBy<S, D, P>: OneOf<AxesBy<LeftBy<S, D, P>, E, Q>>,
    AxesOfBoth<AxesBy<S, D, P>, AxesBy<LeftBy<S, D, P>, E, Q>>:
        OneOf<AxesBy<LeftBy<LeftBy<S, D, P>, E, Q>, F, R>>,
{
    type Left = LeftBy<LeftBy<LeftBy<S, D, P>, E, Q>, F, R>;
    type PartialOver = AxesOfBoth<
        AxesOfBoth<AxesBy<S, D, P>, AxesBy<LeftBy<S, D, P>, E, Q>>,
        AxesBy<LeftBy<LeftBy<S, D, P>, E, Q>, F, R>,
    >;
    const DIM: usize = <S as SumOverOne<D, P>>::DIM;
    const SEAL: Seal = Seal::new();

    fn positions(_: Internal) -> Vec<usize> {
        in_whole_shape(&[
            <S as SumOverOne<D, P>>::DIM,
            <LeftBy<S, D, P> as SumOverOne<E, Q>>::DIM,
            <LeftBy<LeftBy<S, D, P>, E, Q> as SumOverOne<F, R>>::DIM,
        ])
    }
}

/// Returns the positions of dims in ascending order, from positions that each count without the dims before.
fn in_whole_shape(positions: &[usize]) -> Vec<usize> {
    let mut whole: Vec<usize> = Vec::new();
    for left in positions {
        let at = whole.iter().fold(*left, |at, before| at + usize::from(*before <= at));
        whole.push(at);
        whole.sort_unstable();
    }
    whole
}

/// A dim that is split in shape `S`, and can be gathered.
#[diagnostic::on_unimplemented(
    message = "a tensor shaped `{S}` cannot be gathered along `{Self}`",
    label = "`{Self}` is not a split dim of `{S}`",
    note = "a dim that is declared over an axis, as `Batch @ data` or `Seq @ cp`, stays distributed: `.sum(Dim)` and \
            `.mean(Dim)` are partial sums, which `.all_reduce()` completes; a user-defined function may have an output \
            that is `Partial` over the axis; attention to all of a `Seq @ cp` is context-parallel, `#[sharded(cp \
            = \"ring\")]`; `x.gather_to_vec()` returns the global numbers on the host",
    note = "a dim that one rank has to hold whole is declared without `@`"
)]
pub trait GatherDim<S, P> {
    /// The shape after the dim is gathered.
    type Out: Dims;
    /// The axis that splits it.
    type Axis: Axis;
    /// Position of the dim.
    const DIM: usize;
    #[doc(hidden)]
    const SEAL: Seal;
}

/// A whole dim of shape `S` that can be split over `A`, as no other dim is split.
#[diagnostic::on_unimplemented(
    message = "a tensor shaped `{S}` cannot be split along `{Self}`",
    label = "`{Self}` is not a whole dim of `{S}`, or another dim is already split or distributed over the same axis",
    note = "one mesh axis cannot distribute two dims of a tensor, or one dim twice: first make a `Split` dim whole by \
            `.gather(Dim)`, or split over another axis; a dim declared `@` keeps its axes"
)]
pub trait SplitDim<S, A, P> {
    /// The shape after the dim is split.
    type Out: Dims;
    /// Position of the dim.
    const DIM: usize;
    #[doc(hidden)]
    const SEAL: Seal;
}

/// A shape with the dim `D`, whole, split or distributed.
#[diagnostic::on_unimplemented(
    message = "`{D}` is not a dim of a tensor shaped `{Self}`",
    label = "not one of the dims of `{Self}`"
)]
pub trait HasDim<D, P>: Dims {
    /// Position of the dim.
    const DIM: usize;
    #[doc(hidden)]
    const SEAL: Seal;
}

macro_rules! select {
    ($(($($before:ident),*) ($($after:ident),*) at $position:literal)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* D: Whole, $($after: Dim,)*> SumOver<D, At<$position>>
            for ($($before,)* D, $($after,)*)
        where
            ($($before,)* $($after,)*): Dims,
        {
            type Left = ($($before,)* $($after,)*);
            type PartialOver = D::Home;
            const DIM: usize = $position;
            const SEAL: Seal = Seal::new();
        }
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* D: Whole, $($after: Dim,)*> SumOverOne<D, At<$position>>
            for ($($before,)* D, $($after,)*)
        where
            ($($before,)* $($after,)*): Dims,
        {
            type Left = ($($before,)* $($after,)*);
            type PartialOver = D::Home;
            const DIM: usize = $position;
            const SEAL: Seal = Seal::new();
        }
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* D: Whole<Home = Here>, X: Axis, $($after: Dim,)*> SumOver<D, At<$position>>
            for ($($before,)* Split<D, X>, $($after,)*)
        where
            ($($before,)* $($after,)*): Dims,
        {
            type Left = ($($before,)* $($after,)*);
            type PartialOver = X;
            const DIM: usize = $position;
            const SEAL: Seal = Seal::new();
        }
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* D: Whole<Home = Here>, X: Axis, $($after: Dim,)*> SumOverOne<D, At<$position>>
            for ($($before,)* Split<D, X>, $($after,)*)
        where
            ($($before,)* $($after,)*): Dims,
        {
            type Left = ($($before,)* $($after,)*);
            type PartialOver = X;
            const DIM: usize = $position;
            const SEAL: Seal = Seal::new();
        }
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* D: Whole, $($after: Dim,)*> HasDim<D, At<$position>> for ($($before,)* D, $($after,)*) {
            const DIM: usize = $position;
            const SEAL: Seal = Seal::new();
        }
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* D: Whole, X: SplitAxes, $($after: Dim,)*> HasDim<D, At<$position>>
            for ($($before,)* Split<D, X>, $($after,)*)
        {
            const DIM: usize = $position;
            const SEAL: Seal = Seal::new();
        }
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* D: Whole, X: Axis, $($after: Dim,)*>
            GatherDim<($($before,)* Split<D, X>, $($after,)*), At<$position>> for D
        {
            type Out = ($($before,)* D, $($after,)*);
            type Axis = X;
            const DIM: usize = $position;
            const SEAL: Seal = Seal::new();
        }
        #[diagnostic::do_not_recommend]
        impl<$($before: Whole,)* D: Whole, X: Axis, $($after: Whole,)*>
            SplitDim<($($before,)* D, $($after,)*), X, At<$position>> for D
        where
            $($before::Home: ApartFrom<X>,)*
            D::Home: ApartFrom<X>,
            $($after::Home: ApartFrom<X>,)*
        {
            type Out = ($($before,)* Split<D, X>, $($after,)*);
            const DIM: usize = $position;
            const SEAL: Seal = Seal::new();
        }
    )*};
}

select! {
    () () at 0
    () (A) at 0  (A) () at 1
    () (A, B) at 0  (A) (B) at 1  (A, B) () at 2
    () (A, B, C) at 0  (A) (B, C) at 1  (A, B) (C) at 2  (A, B, C) () at 3
    () (A, B, C, E) at 0  (A) (B, C, E) at 1  (A, B) (C, E) at 2  (A, B, C) (E) at 3  (A, B, C, E) () at 4
}

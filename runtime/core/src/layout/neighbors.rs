//! Dims whose ranks exchange neighboring elements: a sequence that is whole, split, distributed over `cp`, or both.

use super::sealed::Seal;
use super::{At, AxisGroup, Cp, Dim, Dims, Here, Local, Split, SplitAxes, Tp, Whole};

/// Axes whose ranks hold parts of the same sequences: none, `Cp`, `Tp`, or both.
#[diagnostic::on_unimplemented(
    message = "the ranks of `{Self}` cannot exchange neighboring elements of a dim",
    label = "its ranks have different samples, or other stages of the model",
    note = "a sequence is whole, split over `Tp`, or declared `@ cp`; the data axes distribute samples, which have no \
            neighbors"
)]
pub trait NeighborAxes: AxisGroup {
    #[doc(hidden)]
    const SEAL: Seal;
}

macro_rules! neighbor_axes {
    ($($axes:ty),*) => {$(
        impl NeighborAxes for $axes {
            const SEAL: Seal = Seal::new();
        }
    )*};
}

neighbor_axes! { Here, Cp, Tp, (Cp, Tp) }

/// A dim whose ranks can exchange neighboring elements: whole, split over `Tp`, declared `@ cp`, or both.
#[diagnostic::on_unimplemented(
    message = "neighboring elements of `{Self}` cannot be exchanged between ranks",
    label = "distributed over axes whose ranks have different samples",
    note = "a sequence is whole, `Split<Seq, Tp>`, or declared `Seq @ cp`"
)]
pub trait NeighborDim: Dim {
    #[doc(hidden)]
    const NEIGHBOR_SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<D: Whole> NeighborDim for D
where
    D::Home: NeighborAxes,
{
    const NEIGHBOR_SEAL: Seal = Seal::new();
}

#[diagnostic::do_not_recommend]
impl<D: Whole, A: SplitAxes + NeighborAxes> NeighborDim for Split<D, A>
where
    D::Home: NeighborAxes,
{
    const NEIGHBOR_SEAL: Seal = Seal::new();
}

/// A dim of shape `S` that elements can be shifted along: whole, split over `Tp`, declared `@ cp`, or both.
#[diagnostic::on_unimplemented(
    message = "a tensor shaped `{S}` cannot be shifted along `{Self}`",
    label = "`{Self}` is not a dim of `{S}`, or is distributed over axes whose ranks have different samples",
    note = "a shift is along a sequence: whole, `Split<Seq, Tp>`, or declared `Seq @ cp`"
)]
pub trait Shifts<S, P> {
    /// Position of the dim.
    const DIM: usize;
    #[doc(hidden)]
    const SEAL: Seal;
}

macro_rules! shifts {
    ($(($($before:ident),*) ($($after:ident),*) at $position:literal)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* D: Whole + NeighborDim, $($after: Dim,)*>
            Shifts<($($before,)* D, $($after,)*), At<$position>> for D
        {
            const DIM: usize = $position;
            const SEAL: Seal = Seal::new();
        }
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* D: Whole, X: SplitAxes, $($after: Dim,)*>
            Shifts<($($before,)* Split<D, X>, $($after,)*), At<$position>> for D
        where
            Split<D, X>: NeighborDim,
        {
            const DIM: usize = $position;
            const SEAL: Seal = Seal::new();
        }
    )*};
}

shifts! {
    () () at 0
    () (A) at 0  (A) () at 1
    () (A, B) at 0  (A) (B) at 1  (A, B) () at 2
    () (A, B, C) at 0  (A) (B, C) at 1  (A, B) (C) at 2  (A, B, C) () at 3
    () (A, B, C, E) at 0  (A) (B, C, E) at 1  (A, B) (C, E) at 2  (A, B, C) (E) at 3  (A, B, C, E) () at 4
}

/// The dims before a feature, the last of which is a sequence whose ranks can exchange neighboring elements.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not end in a sequence",
    label = "no dims, or the last one is distributed over axes whose ranks have different samples",
    note = "a sequence is whole, `Split<Seq, Tp>`, or declared `Seq @ cp`"
)]
pub trait SequenceLast: Dims {
    #[doc(hidden)]
    const SEQUENCE_SEAL: Seal;
}

/// The dims before a feature, the last of which is a sequence that is whole on every rank.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not end in a whole sequence",
    label = "no dims, or the last one is split or distributed",
    note = "`.gather(Dim)` makes a `Split<Dim, A>` whole first; a sequence that one layer reads whole is declared \
            without `@`"
)]
pub trait WholeSequenceLast: SequenceLast {
    #[doc(hidden)]
    const WHOLE_SEAL: Seal;
}

macro_rules! sequences {
    ($(($($before:ident),*))*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* S: NeighborDim> SequenceLast for ($($before,)* S,) {
            const SEQUENCE_SEAL: Seal = Seal::new();
        }
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* S: Local + NeighborDim> WholeSequenceLast for ($($before,)* S,) {
            const WHOLE_SEAL: Seal = Seal::new();
        }
    )*};
}

sequences! { () (A) (A, B) (A, B, C) }

/// The dim of the `N` taps of a convolution. Its size is part of the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Taps<const N: usize>;

#[diagnostic::do_not_recommend]
impl<const N: usize> Whole for Taps<N> {
    const DECLARED_NAME: &'static str = "Taps";
    type Home = Here;
}

#[diagnostic::do_not_recommend]
impl<const N: usize> Local for Taps<N> {}

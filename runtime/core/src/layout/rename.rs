//! Dims by other names: one for one, two as one, one as two.

use super::sealed::Seal;
use super::{At, Dim, Dims, Local, Split, SplitAxes, Whole};

/// A dim of shape `S` that can be renamed to `E`: both are declared over the same axes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` of a tensor shaped `{S}` cannot become `{E}`",
    label = "`{Self}` is not one of its dims, or is declared over other axes than `{E}`",
    note = "both dims are declared with the same `@ axis`, or both without; a split dim stays split"
)]
pub trait RenameDim<S, E, P> {
    /// The shape with `E`, split as `Self` was.
    type Out: Dims;
    /// Position of the dim.
    const DIM: usize;
    #[doc(hidden)]
    const SEAL: Seal;
}

/// Two neighboring dims of shape `S`, the first of which may be split, that are dim `F` together.
#[diagnostic::on_unimplemented(
    message = "dims `{Self}` of a tensor shaped `{S}` cannot be joined to `{F}`",
    label = "the second follows the first in `{S}` and is whole, and `{F}` is declared over the axes of the first",
    note = "`.permute((..))` puts them side by side; `{F}` is then split as the first was, between its elements"
)]
pub trait JoinDims<S, F, P> {
    /// The shape with `F`.
    type Out: Dims;
    /// Position of the first.
    const DIM: usize;
    #[doc(hidden)]
    const SEAL: Seal;
}

/// A dim of shape `S` that can be parted into the two dims `N`, the first declared over its axes and the second whole.
#[diagnostic::on_unimplemented(
    message = "`{Self}` of a tensor shaped `{S}` cannot be parted into `{N}`",
    label = "not one of its dims, or the result has more than five, or the first of `{N}` is declared over other axes",
    note = "the first of the two keeps the split: it is declared with the `@ axis` of `{Self}`, and the second without"
)]
pub trait PartDim<S, N, P> {
    /// The shape with both.
    type Out: Dims;
    /// Position of the dim.
    const DIM: usize;
    #[doc(hidden)]
    const SEAL: Seal;
}

macro_rules! rename {
    ($(($($before:ident),*) ($($after:ident),*) at $position:literal)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* D: Whole, G: Whole<Home = D::Home>, $($after: Dim,)*>
            RenameDim<($($before,)* D, $($after,)*), G, At<$position>> for D
        {
            type Out = ($($before,)* G, $($after,)*);
            const DIM: usize = $position;
            const SEAL: Seal = Seal::new();
        }
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* D: Whole, G: Whole<Home = D::Home>, X: SplitAxes, $($after: Dim,)*>
            RenameDim<($($before,)* Split<D, X>, $($after,)*), G, At<$position>> for D
        {
            type Out = ($($before,)* Split<G, X>, $($after,)*);
            const DIM: usize = $position;
            const SEAL: Seal = Seal::new();
        }
    )*};
}

rename! {
    () () at 0
    () (A) at 0  (A) () at 1
    () (A, B) at 0  (A) (B) at 1  (A, B) () at 2
    () (A, B, C) at 0  (A) (B, C) at 1  (A, B) (C) at 2  (A, B, C) () at 3
    () (A, B, C, E) at 0  (A) (B, C, E) at 1  (A, B) (C, E) at 2  (A, B, C) (E) at 3  (A, B, C, E) () at 4
}

macro_rules! join_and_part {
    ($(($($before:ident),*) ($($after:ident),*) at $position:literal)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* D: Whole, E: Local, F: Whole<Home = D::Home>, $($after: Dim,)*>
            JoinDims<($($before,)* D, E, $($after,)*), F, At<$position>> for (D, E)
        {
            type Out = ($($before,)* F, $($after,)*);
            const DIM: usize = $position;
            const SEAL: Seal = Seal::new();
        }
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* D: Whole, E: Local, F: Whole<Home = D::Home>, X: SplitAxes, $($after: Dim,)*>
            JoinDims<($($before,)* Split<D, X>, E, $($after,)*), F, At<$position>> for (D, E)
        {
            type Out = ($($before,)* Split<F, X>, $($after,)*);
            const DIM: usize = $position;
            const SEAL: Seal = Seal::new();
        }
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* D: Whole<Home = F::Home>, E: Local, F: Whole, $($after: Dim,)*>
            PartDim<($($before,)* F, $($after,)*), (D, E), At<$position>> for F
        {
            type Out = ($($before,)* D, E, $($after,)*);
            const DIM: usize = $position;
            const SEAL: Seal = Seal::new();
        }
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* D: Whole<Home = F::Home>, E: Local, F: Whole, X: SplitAxes, $($after: Dim,)*>
            PartDim<($($before,)* Split<F, X>, $($after,)*), (D, E), At<$position>> for F
        {
            type Out = ($($before,)* Split<D, X>, E, $($after,)*);
            const DIM: usize = $position;
            const SEAL: Seal = Seal::new();
        }
    )*};
}

join_and_part! {
    () () at 0
    () (A) at 0  (A) () at 1
    () (A, B) at 0  (A) (B) at 1  (A, B) () at 2
    () (A, B, C) at 0  (A) (B, C) at 1  (A, B) (C) at 2  (A, B, C) () at 3
}

//! Picking one dim of a shape by its name, as a type.

use super::{Axis, Dim, Home, Shape, Split, Whole};

/// A position in a shape; found by the compiler, never written.
#[derive(Debug)]
pub struct At<const POSITION: usize>;

/// The shape holds dim `D`, whole or split, and can be summed over it.
#[diagnostic::on_unimplemented(
    message = "a tensor shaped `{Self}` cannot be summed over `{D}`",
    label = "`{D}` is not a dim of `{Self}`"
)]
pub trait SumOver<D, P> {
    /// The dims that are left.
    type Left: Shape;
    /// The axes over which the sum is then still partial: [`Here`](super::Here) where it is complete.
    type PartialOver: Home;
    /// Position of the dim.
    const DIM: usize;
}

/// The shape holds dim `D` split over an axis, and can be gathered.
#[diagnostic::on_unimplemented(
    message = "a tensor shaped `{Self}` cannot be gathered along `{D}`",
    label = "`{D}` is not a split dim of `{Self}`"
)]
pub trait GatherDim<D, P> {
    /// The shape with `D` whole.
    type Out: Shape;
    /// The axis over which it was split.
    type Axis: Axis;
    /// Position of the dim.
    const DIM: usize;
}

/// The shape holds dim `D` whole and nothing split over `A`, so that `D` can be split over `A`.
#[diagnostic::on_unimplemented(
    message = "a tensor shaped `{Self}` cannot be split along `{D}` over `{A}`",
    label = "`{D}` is not a whole dim of `{Self}`, or something else is already split over `{A}`"
)]
pub trait SplitDim<D, A, P> {
    /// The shape with `Split<D, A>`.
    type Out: Shape;
    /// Position of the dim.
    const DIM: usize;
}

macro_rules! select {
    ($(($($before:ident),*) ($($after:ident),*) at $position:literal)*) => {$(
        impl<$($before: Dim,)* D: Whole, $($after: Dim,)*> SumOver<D, At<$position>>
            for ($($before,)* D, $($after,)*)
        where
            ($($before,)* $($after,)*): Shape,
        {
            type Left = ($($before,)* $($after,)*);
            type PartialOver = D::Home;
            const DIM: usize = $position;
        }
        impl<$($before: Dim,)* D: Whole<Home = super::Here>, X: Axis, $($after: Dim,)*> SumOver<D, At<$position>>
            for ($($before,)* Split<D, X>, $($after,)*)
        where
            ($($before,)* $($after,)*): Shape,
        {
            type Left = ($($before,)* $($after,)*);
            type PartialOver = X;
            const DIM: usize = $position;
        }
        impl<$($before: Dim,)* D: Whole, X: Axis, $($after: Dim,)*> GatherDim<D, At<$position>>
            for ($($before,)* Split<D, X>, $($after,)*)
        {
            type Out = ($($before,)* D, $($after,)*);
            type Axis = X;
            const DIM: usize = $position;
        }
        impl<$($before: Whole,)* D: Whole, X: Axis, $($after: Whole,)*> SplitDim<D, X, At<$position>>
            for ($($before,)* D, $($after,)*)
        {
            type Out = ($($before,)* Split<D, X>, $($after,)*);
            const DIM: usize = $position;
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

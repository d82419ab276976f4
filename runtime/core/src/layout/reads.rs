//! Operations that read along a dim of which each rank holds all elements.

use super::sealed::Seal;
use super::{At, Dim, Dims, Local};

/// A dim of shape `S` that each rank holds whole, so that an operation can read along it.
///
/// The dim is `Self`, and the shape a parameter: the compiler then takes the dim from the argument of the operation,
/// and not from the only dim of the shape that would fit.
#[diagnostic::on_unimplemented(
    message = "a rank holds only a shard of `{Self}` of `{S}`, but this operation reads all of it",
    label = "`{Self}` is split or distributed, or not a dim of `{S}`",
    note = "`.gather(Dim)` makes a `Split<Dim, A>` whole first; sums and means take a split dim, and return a partial \
            sum",
    note = "along a dim split over `Tp`, or declared over `cp`, ranks read together: `.across()`, as in \
            `x.across().max(Dim)`"
)]
pub trait Reads<S, P> {
    /// The other dims, in order.
    type Left: Dims;
    /// Position of the dim.
    const DIM: usize;
    #[doc(hidden)]
    const SEAL: Seal;
}

macro_rules! reads {
    ($(($($before:ident),*) ($($after:ident),*) at $position:literal)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* D: Local, $($after: Dim,)*> Reads<($($before,)* D, $($after,)*), At<$position>> for D
        where
            ($($before,)* $($after,)*): Dims,
        {
            type Left = ($($before,)* $($after,)*);
            const DIM: usize = $position;
            const SEAL: Seal = Seal::new();
        }
    )*};
}

reads! {
    () () at 0
    () (A) at 0  (A) () at 1
    () (A, B) at 0  (A) (B) at 1  (A, B) () at 2
    () (A, B, C) at 0  (A) (B, C) at 1  (A, B) (C) at 2  (A, B, C) () at 3
    () (A, B, C, E) at 0  (A) (B, C, E) at 1  (A, B) (C, E) at 2  (A, B, C) (E) at 3  (A, B, C, E) () at 4
}

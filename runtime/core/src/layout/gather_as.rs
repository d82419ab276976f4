//! Dims that are declared over an axis, gathered under another name.

use super::sealed::Seal;
use super::{At, Dim, Dims, Local, Whole};

/// A dim of shape `S` that is declared over axes, and can be gathered as dim `E`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` of a tensor shaped `{S}` cannot be gathered as `{E}`",
    label = "`{Self}` is not one of its dims, or is a `Split`, or `{E}` is declared over an axis",
    note = "`.gather(Dim)` makes a `Split<Dim, A>` whole; `{E}` is declared without `@`"
)]
pub trait GatherDimAs<S, E, P> {
    /// The shape with `E`.
    type Out: Dims;
    /// Position of the dim.
    const DIM: usize;
    #[doc(hidden)]
    const SEAL: Seal;
}

macro_rules! gather_as {
    ($(($($before:ident),*) ($($after:ident),*) at $position:literal)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* D: Whole, G: Local, $($after: Dim,)*>
            GatherDimAs<($($before,)* D, $($after,)*), G, At<$position>> for D
        {
            type Out = ($($before,)* G, $($after,)*);
            const DIM: usize = $position;
            const SEAL: Seal = Seal::new();
        }
    )*};
}

gather_as! {
    () () at 0
    () (A) at 0  (A) () at 1
    () (A, B) at 0  (A) (B) at 1  (A, B) () at 2
    () (A, B, C) at 0  (A) (B, C) at 1  (A, B) (C) at 2  (A, B, C) () at 3
    () (A, B, C, E) at 0  (A) (B, C, E) at 1  (A, B) (C, E) at 2  (A, B, C) (E) at 3  (A, B, C, E) () at 4
}

//! Shapes with further dims: one behind the other, and one dim put between others.

use super::sealed::Seal;
use super::{At, AxisSet, Dim, Dims, Local, TakeDim};

/// A shape that has room for the dims of `T` behind its own: five dims at most together.
#[diagnostic::on_unimplemented(
    message = "the dims of `{Self}` and `{T}` are no shape together",
    label = "a tensor has at most five dims, none of them grouped"
)]
pub trait FollowedBy<T> {
    /// The dims of both.
    type Out: Dims;
    #[doc(hidden)]
    const SEAL: Seal;
}

macro_rules! followed_by {
    ($(($($first:ident)*) ($($second:ident)*);)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($first: Dim,)* $($second: Dim),*> FollowedBy<($($second,)*)> for ($($first,)*) {
            type Out = ($($first,)* $($second,)*);
            const SEAL: Seal = Seal::new();
        }
    )*};
}

followed_by! {
    () (); () (A); () (A B); () (A B C); () (A B C D); () (A B C D E);
    (A) (); (A) (B); (A) (B C); (A) (B C D); (A) (B C D E);
    (A B) (); (A B) (C); (A B) (C D); (A B) (C D E);
    (A B C) (); (A B C) (D); (A B C) (D E);
    (A B C D) (); (A B C D) (E);
    (A B C D E) ();
}

/// A shape into which dim `X` can be put at position `P`, or behind all others if it has fewer dims.
pub trait InsertDim<X, P> {
    /// The shape with `X`.
    type Out: Dims;
    /// Position of `X`.
    const DIM: usize;
    #[doc(hidden)]
    const SEAL: Seal;
}

macro_rules! insert {
    ($(($($before:ident)*) ($($after:ident)*) $dim:literal at $position:literal;)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* X: Dim, $($after: Dim,)*> InsertDim<X, At<$position>> for ($($before,)* $($after,)*) {
            type Out = ($($before,)* X, $($after,)*);
            const DIM: usize = $dim;
            const SEAL: Seal = Seal::new();
        }
    )*};
}

insert! {
    () () 0 at 0; () () 0 at 1; () () 0 at 2; () () 0 at 3; () () 0 at 4;
    () (A) 0 at 0; (A) () 1 at 1; (A) () 1 at 2; (A) () 1 at 3; (A) () 1 at 4;
    () (A B) 0 at 0; (A) (B) 1 at 1; (A B) () 2 at 2; (A B) () 2 at 3; (A B) () 2 at 4;
    () (A B C) 0 at 0; (A) (B C) 1 at 1; (A B) (C) 2 at 2; (A B C) () 3 at 3; (A B C) () 3 at 4;
    () (A B C D) 0 at 0; (A) (B C D) 1 at 1; (A B) (C D) 2 at 2; (A B C) (D) 3 at 3; (A B C D) () 4 at 4;
}

/// A dim of shape `T` along which a tensor shaped `S`, which does not have it, can be repeated.
#[diagnostic::on_unimplemented(
    message = "a tensor shaped `{S}` cannot be repeated along `{Self}` of one shaped `{T}`",
    label = "`{Self}` is not a dim of `{T}`, or `{S}` has five dims already"
)]
pub trait ExpandDim<S, T, P> {
    /// The shape with the dim in its state in `T`, at its position there.
    type Out: Dims;
    /// The axes whose regions the tensor enters.
    const ENTERS: AxisSet;
    /// Position of the dim in `T`, and in the result.
    const DIMS: [usize; 2];
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<S, T, D, P> ExpandDim<S, T, P> for D
where
    D: TakeDim<T, P>,
    S: Dims + InsertDim<D::Taken, P>,
{
    type Out = S::Out;
    const ENTERS: AxisSet = <S::Out as Dims>::VARIES.difference(S::VARIES);
    const DIMS: [usize; 2] = [<D as TakeDim<T, P>>::DIM, <S as InsertDim<D::Taken, P>>::DIM];
    const SEAL: Seal = Seal::new();
}

/// A dim of shape `T` that can follow the elements along the dim at position `P` of a tensor with the other dims `L`.
#[diagnostic::on_unimplemented(
    message = "a tensor shaped `{T}` cannot follow another one along `{Self}`",
    label = "besides `{Self}`, which is whole, it needs the dims `{L}`, split alike and in this order",
    note = "the two dims that are put together have the same position: `.permute((..))` moves one, `.rename(Dim, \
            Other)` makes two dims one, and `.expand_as(Dim, &other)` adds a missing one"
)]
pub trait ConcatDim<T, L, P> {
    #[doc(hidden)]
    const SEAL: Seal;
}

macro_rules! concat {
    ($(($($before:ident),*) ($($after:ident),*) at $position:literal)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* D: Local, $($after: Dim,)*>
            ConcatDim<($($before,)* D, $($after,)*), ($($before,)* $($after,)*), At<$position>> for D
        {
            const SEAL: Seal = Seal::new();
        }
    )*};
}

concat! {
    () () at 0
    () (A) at 0  (A) () at 1
    () (A, B) at 0  (A) (B) at 1  (A, B) () at 2
    () (A, B, C) at 0  (A) (B, C) at 1  (A, B) (C) at 2  (A, B, C) () at 3
    () (A, B, C, E) at 0  (A) (B, C, E) at 1  (A, B) (C, E) at 2  (A, B, C) (E) at 3  (A, B, C, E) () at 4
}

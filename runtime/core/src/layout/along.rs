//! Broadcasting: a tensor is repeated along the dims that only another one has.

use super::distinct_names::repeated;
use super::name::{Absent, Find, Named};
use super::sealed::Seal;
use super::{At, Dim, Dims};

/// A shape with the dim `D`, split as it is, at place `P`.
#[diagnostic::on_unimplemented(
    message = "`{D}` is not split as in `{Self}`",
    label = "one of the two has more of the dim than the other",
    note = "`.slice(Dim, Tp)` splits a whole dim, `.gather(Dim)` makes a split one whole: do one of them to one of the \
            two; a dim declared `@` stays distributed"
)]
pub trait Holds<D, P> {
    /// Position of the dim.
    const DIM: usize;
    #[doc(hidden)]
    const SEAL: Seal;
}

macro_rules! holds {
    ($(($($before:ident),*) ($($after:ident),*) at $position:literal)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* X: Dim, $($after: Dim,)*> Holds<X, At<$position>> for ($($before,)* X, $($after,)*) {
            const DIM: usize = $position;
            const SEAL: Seal = Seal::new();
        }
    )*};
}

holds! {
    () () at 0
    () (A) at 0  (A) () at 1
    () (A, B) at 0  (A) (B) at 1  (A, B) () at 2
    () (A, B, C) at 0  (A) (B, C) at 1  (A, B) (C) at 2  (A, B, C) () at 3
    () (A, B, C, E) at 0  (A) (B, C, E) at 1  (A, B) (C, E) at 2  (A, B, C) (E) at 3  (A, B, C, E) () at 4
}

/// Never implemented: a dim that shape `S` does not have, but would need.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a dim of `{S}`",
    label = "a tensor is repeated along dims that only the other has, so one of the two must have all dims of the \
             other",
    note = "give one of them the missing dim, `.expand(Dim, size)`, or rename it, `.rename(Dim, Other)`"
)]
pub trait DimOf<S> {
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<S, D: DimOf<S>> Holds<D, Absent> for S {
    const DIM: usize = usize::MAX;
    const SEAL: Seal = Seal::new();
}

/// A shape whose dims, in any order, are dims of `S` and split alike, at places `P`: it can be repeated along `S`.
///
/// Code that is generic in dims needs no bound for it: the compiler finds the places by type, as in
/// [`mul_along`](crate::tensor::Tensor::mul_along).
#[diagnostic::on_unimplemented(
    message = "a tensor shaped `{Self}` cannot be repeated along `{S}`",
    label = "one of its dims is missing there, or split differently",
    note = "the tensor with more dims stands on the left: `x.mul_along(&gate)`"
)]
pub trait Along<S, P>: Dims {
    /// The position in `S` of each dim.
    const PLACES: &'static [usize];
    #[doc(hidden)]
    const SEAL: Seal;
}

/// A shape whose dims are looked for in `S` by name.
pub trait Places<S> {
    /// The place of each dim.
    type Found;
}

/// A shape whose dims, in any order, are dims of `S` and split alike: a tensor shaped so is repeated along the other
/// dims of `S` by the operators.
pub trait Broadcast<S>: Dims {
    /// The position in `S` of each dim.
    const PLACES: &'static [usize];
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<S: Dims, T: Places<S> + Along<S, T::Found>> Broadcast<S> for T {
    const PLACES: &'static [usize] = <T as Along<S, T::Found>>::PLACES;
    const SEAL: Seal = Seal::new();
}

macro_rules! alongs {
    ($(($($dim:ident $place:ident),*))*) => {$(
                impl<S: Dims $(+ Holds<$dim, $place>)*, $($dim: Dim, $place),*> Along<S, ($($place,)*)>
            for ($($dim,)*)
        {
            const PLACES: &'static [usize] = {
                distinct_names::<S>();
                &[$(<S as Holds<$dim, $place>>::DIM),*]
            };
            const SEAL: Seal = Seal::new();
        }

                impl<S: Dims $(+ Find<$dim>)*, $($dim: Named),*> Places<S> for ($($dim,)*) {
            type Found = ($(<S as Find<$dim>>::Place,)*);
        }
    )*};
}

alongs! { () (X P) (X P, Y Q) (X P, Y Q, Z R) (X P, Y Q, Z R, W V) }

/// Compiles if no two dims of `S` have one name, so that a dim has one place.
const fn distinct_names<S: Dims>() {
    assert!(
        repeated(S::DIMS).is_none(),
        "the larger tensor has two dims with one name, so the place of the smaller one is not known: rename one of \
         them, `.rename(Dim, Other)`"
    );
}

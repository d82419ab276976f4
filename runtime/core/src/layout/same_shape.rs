//! The rule of two shapes that elementwise operations combine.

use super::sealed::Seal;

/// A shape that elementwise operations can combine with `Self`: the same dims, split alike, or some of them.
///
/// All dims of one side are dims of the other, which has more of them or the same ones in the same order. The result
/// has the shape of the side with more dims, and the other is [repeated](super::Broadcast) along the dims that it does
/// not have.
///
/// Impls with a bound that nothing has are for mistakes: their bounds explain the fix. The shape is a parameter, and
/// not `Self`, so that other messages do not list the impls. Their result has the shape of the left side, so that a
/// mistake has no second message about the type of the result.
#[diagnostic::on_unimplemented(
    message = "a tensor shaped `{S}` cannot be combined with one shaped `{T}`",
    label = "their dims or splits differ, or are not known to be the same",
    note = "both sides must have the same dims, split alike: `.gather(Dim)` makes a `Split<Dim, A>` whole, \
            `.slice(Dim, Tp)` splits a whole dim; one declared `@` stays distributed",
    note = "dims in another order are put in order by `.permute((..))`; a tensor with fewer dims, all of which the \
            other has, is repeated along the others",
    note = "rows of experts go back to their tokens first: `routing.combine(&rows)`"
)]
pub trait SameShape<T: ?Sized, S: ?Sized = Self> {
    /// The shape of the result.
    type Combined;
    /// The position in the result of each dim of `S`, if it has fewer.
    const LEFT_PLACES: Option<&'static [usize]> = None;
    /// The position in the result of each dim of `T`, if it has fewer.
    const RIGHT_PLACES: Option<&'static [usize]> = None;
    #[doc(hidden)]
    const SEAL: Seal;
}

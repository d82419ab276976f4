//! Entering and leaving a region in which ranks of an axis do different work, as maps between shapes.
//!
//! A shape is read as *lead* dims (who: batch, sequence) and a *feature* (what a layer works on).

use super::{Axis, AxisId, Dim, Shape, Split, Whole};

/// A shape that ends in feature `F`.
pub trait Ends<F>: Shape {
    /// The dims before the feature.
    type Lead;
}

/// Lead dims, to which a feature can be put.
pub trait With<F> {
    /// The lead dims followed by the feature.
    type Out: Shape;
}

macro_rules! features {
    ($(($($lead:ident),+))*) => {$(
        impl<$($lead: Dim,)+ F: Dim> Ends<F> for ($($lead,)+ F) {
            type Lead = ($($lead,)+);
        }
        impl<$($lead: Dim,)+ F: Dim, G: Dim> Ends<(F, G)> for ($($lead,)+ F, G) {
            type Lead = ($($lead,)+);
        }
        impl<$($lead: Dim,)+ F: Dim> With<F> for ($($lead,)+) {
            type Out = ($($lead,)+ F);
        }
        impl<$($lead: Dim,)+ F: Dim, G: Dim> With<(F, G)> for ($($lead,)+) {
            type Out = ($($lead,)+ F, G);
        }
    )*};
}

features! { (A) (A, B) (A, B, C) }

impl<A: Dim, B: Dim, C: Dim, D: Dim, F: Dim> Ends<F> for (A, B, C, D, F) {
    type Lead = (A, B, C, D);
}

impl<A: Dim, B: Dim, C: Dim, D: Dim, F: Dim> With<F> for (A, B, C, D) {
    type Out = (A, B, C, D, F);
}

impl<F: Dim> Ends<F> for (F,) {
    type Lead = ();
}

impl<F: Dim, G: Dim> Ends<(F, G)> for (F, G) {
    type Lead = ();
}

impl<F: Dim> With<F> for () {
    type Out = (F,);
}

impl<F: Dim, G: Dim> With<(F, G)> for () {
    type Out = (F, G);
}

impl<X: Axis> Enter<X> for () {
    type Inside = ();
    const ENTRY: Entry = Entry::Copy(X::ID);
}

/// What happens to a tensor on the way into a region that varies over an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Nothing: the operation does not vary over any further axis.
    Stay,
    /// The value is used as it is; its gradient is summed over the axis.
    Copy(AxisId),
    /// The dim at this position is all-gathered; its gradient is reduce-scattered.
    Gather(AxisId, usize),
}

/// Lead dims that may enter a region over `A`: whole, or with the last of them split over `A`.
pub trait Enter<A> {
    /// The lead dims inside the region.
    type Inside;
    /// How they come in.
    const ENTRY: Entry;
}

/// Lead dims whose last one is `D`, which may be split over `A` on the way out of a region.
pub trait ScatterLast<D, A> {
    /// The lead dims with `Split<D, A>` at their end.
    type Out;
    /// Position of the split dim.
    const DIM: usize;
}

macro_rules! regions {
    ($(($($lead:ident),*) at $position:literal)*) => {$(
        impl<$($lead: Whole,)* S: Whole, X: Axis> Enter<X> for ($($lead,)* S,) {
            type Inside = ($($lead,)* S,);
            const ENTRY: Entry = Entry::Copy(X::ID);
        }
        impl<$($lead: Whole,)* S: Whole, X: Axis> Enter<X> for ($($lead,)* Split<S, X>,) {
            type Inside = ($($lead,)* S,);
            const ENTRY: Entry = Entry::Gather(X::ID, $position);
        }
        impl<$($lead: Whole,)* S: Whole, X: Axis> ScatterLast<S, X> for ($($lead,)* S,) {
            type Out = ($($lead,)* Split<S, X>,);
            const DIM: usize = $position;
        }
    )*};
}

regions! { () at 0 (A) at 1 (A, B) at 2 (A, B, C) at 3 }

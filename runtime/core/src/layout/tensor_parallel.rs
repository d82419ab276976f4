//! Entering and leaving a tensor-parallel region (Megatron's f and g operators), as maps between shapes.
//!
//! A shape consists of *lead* dims (batch, sequence) and a *feature*, which a layer reads or writes.

use super::sealed::Seal;
use super::{Axis, AxisId, Dim, Dims, Split, Whole};

/// A shape that ends in feature `F`.
pub trait Ends<F>: Dims {
    /// The dims before the feature.
    type Lead;
    #[doc(hidden)]
    const SEAL: Seal;
}

/// Lead dims to which a feature can be appended.
pub trait With<F> {
    /// The lead dims followed by the feature.
    type Out: Dims;
    #[doc(hidden)]
    const SEAL: Seal;
}

macro_rules! features {
    ($(($($lead:ident),+))*) => {$(
        impl<$($lead: Dim,)+ F: Dim> Ends<F> for ($($lead,)+ F) {
            type Lead = ($($lead,)+);
            const SEAL: Seal = Seal::new();
        }
        impl<$($lead: Dim,)+ F: Dim, G: Dim> Ends<(F, G)> for ($($lead,)+ F, G) {
            type Lead = ($($lead,)+);
            const SEAL: Seal = Seal::new();
        }
        impl<$($lead: Dim,)+ F: Dim> With<F> for ($($lead,)+) {
            type Out = ($($lead,)+ F);
            const SEAL: Seal = Seal::new();
        }
        impl<$($lead: Dim,)+ F: Dim, G: Dim> With<(F, G)> for ($($lead,)+) {
            type Out = ($($lead,)+ F, G);
            const SEAL: Seal = Seal::new();
        }
    )*};
}

features! { (A) (A, B) (A, B, C) }

impl<A: Dim, B: Dim, C: Dim, D: Dim, F: Dim> Ends<F> for (A, B, C, D, F) {
    type Lead = (A, B, C, D);
    const SEAL: Seal = Seal::new();
}

impl<A: Dim, B: Dim, C: Dim, D: Dim, F: Dim> With<F> for (A, B, C, D) {
    type Out = (A, B, C, D, F);
    const SEAL: Seal = Seal::new();
}

impl<F: Dim> Ends<F> for (F,) {
    type Lead = ();
    const SEAL: Seal = Seal::new();
}

impl<F: Dim, G: Dim> Ends<(F, G)> for (F, G) {
    type Lead = ();
    const SEAL: Seal = Seal::new();
}

impl<F: Dim> With<F> for () {
    type Out = (F,);
    const SEAL: Seal = Seal::new();
}

impl<F: Dim, G: Dim> With<(F, G)> for () {
    type Out = (F, G);
    const SEAL: Seal = Seal::new();
}

impl<X: Axis> Enter<X> for () {
    type Inside = ();
    const ENTRY: Entry = Entry::Copy(X::ID);
    const SEAL: Seal = Seal::new();
}

/// The operation on a tensor as it enters a region that varies over an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// None: the region does not vary over a further axis.
    Stay,
    /// Identity forward; the gradient is all-reduced over the axis.
    Copy(AxisId),
    /// All-gather of the dim at this position forward; the gradient is reduce-scattered.
    Gather(AxisId, usize),
}

/// Lead dims that may enter a region over `A`: whole, or with the last of them split over `A`.
pub trait Enter<A> {
    /// The lead dims inside the region.
    type Inside;
    /// The operation on entry.
    const ENTRY: Entry;
    #[doc(hidden)]
    const SEAL: Seal;
}

/// Lead dims whose last dim `D` can be split over `A` by the reduce-scatter that leaves a region.
pub trait ScatterLast<D, A> {
    /// The lead dims with `Split<D, A>` as the last one.
    type Out;
    /// Position of the split dim.
    const DIM: usize;
    #[doc(hidden)]
    const SEAL: Seal;
}

/// Lead dims without a split dim.
pub trait Unsplit {
    #[doc(hidden)]
    const SEAL: Seal;
}

macro_rules! unsplit {
    ($(($($lead:ident),*))*) => {$(
        impl<$($lead: Whole),*> Unsplit for ($($lead,)*) {
            const SEAL: Seal = Seal::new();
        }
    )*};
}

unsplit! { () (A) (A, B) (A, B, C) (A, B, C, D) }

macro_rules! regions {
    ($(($($lead:ident),*) at $position:literal)*) => {$(
        impl<$($lead: Whole,)* S: Whole, X: Axis> Enter<X> for ($($lead,)* S,) {
            type Inside = ($($lead,)* S,);
            const ENTRY: Entry = Entry::Copy(X::ID);
            const SEAL: Seal = Seal::new();
        }
        impl<$($lead: Whole,)* S: Whole, X: Axis> Enter<X> for ($($lead,)* Split<S, X>,) {
            type Inside = ($($lead,)* S,);
            const ENTRY: Entry = Entry::Gather(X::ID, $position);
            const SEAL: Seal = Seal::new();
        }
        impl<$($lead: Whole,)* S: Whole, X: Axis> ScatterLast<S, X> for ($($lead,)* S,) {
            type Out = ($($lead,)* Split<S, X>,);
            const DIM: usize = $position;
            const SEAL: Seal = Seal::new();
        }
    )*};
}

regions! { () at 0 (A) at 1 (A, B) at 2 (A, B, C) at 3 }

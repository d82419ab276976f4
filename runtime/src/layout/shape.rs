//! Shapes: tuples of dims; and features: what a layer reads and writes at the end of a shape.

use super::{Axis, AxisSet, Dim, DimInfo, Split, Whole};

/// The dims of a tensor, outermost first: a tuple of 1 to 5 dims.
///
/// A weight may group its dims, `(Hidden, (Heads, HeadDim))`: what it reads, and what it writes. `((Heads, HeadDim),)`
/// only writes, as a bias does.
///
/// An axis distributes one dim at most; no tensor of any other shape can be made:
///
/// ```compile_fail,E0080
/// use meshwright::layout::{AxisSet, Shape};
/// use meshwright::prelude::*;
///
/// dims! { Batch @ data, Seq, Ffn }
///
/// const TWICE: AxisSet = <(Batch, Split<Seq, Tp>, Split<Ffn, Tp>) as Shape>::VARIES;
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a shape",
    note = "a shape is a tuple of 1 to 5 dims: `(Batch, Seq, Hidden)`; of one dim: `(Hidden,)`"
)]
pub trait Shape: 'static {
    /// The axes over which ranks hold different parts.
    const VARIES: AxisSet;
    /// Each dim, outermost first.
    const DIMS: &'static [DimInfo];
    /// As the shape of a weight: number of leading dims that it reads, the others being those it writes.
    const READS: usize = 1;
}

macro_rules! shapes {
    ($(($($dim:ident),+))*) => {$(
        impl<$($dim: Dim),+> Shape for ($($dim,)+) {
            const VARIES: AxisSet = AxisSet::NONE$(.joined($dim::VARIES))+;
            const DIMS: &'static [DimInfo] = &[$($dim::INFO),+];
        }
    )*};
}

impl Shape for () {
    const VARIES: AxisSet = AxisSet::NONE;
    const DIMS: &'static [DimInfo] = &[];
}

shapes! { (A) (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E) }

macro_rules! grouped_shapes {
    ($(<$($dim:ident),+> $shape:ty, reads $reads:literal;)*) => {$(
        impl<$($dim: Dim),+> Shape for $shape {
            const VARIES: AxisSet = AxisSet::NONE$(.joined($dim::VARIES))+;
            const DIMS: &'static [DimInfo] = &[$($dim::INFO),+];
            const READS: usize = $reads;
        }
    )*};
}

grouped_shapes! {
    <A, B> ((A, B),), reads 0;
    <A, B, C> (A, (B, C)), reads 1;
    <A, B, C> ((A, B), C), reads 2;
    <A, B, C, D> ((A, B), (C, D)), reads 2;
}

/// What a layer reads or writes at the end of a shape: one dim, or a pair such as `(Heads, HeadDim)` whose first
/// dim is the one that a split cuts.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a dim nor a pair of dims",
    note = "a layer reads and writes one dim (`Hidden`) or a pair (`(Heads, HeadDim)`)"
)]
pub trait Feature: 'static {
    /// The shape of something that has these dims and no others, such as a bias.
    type Alone: Shape;
    /// The axes over which ranks hold different parts.
    const VARIES: AxisSet;
    /// Each dim, outermost first.
    const DIMS: &'static [DimInfo];
}

impl<D: Dim> Feature for D {
    type Alone = (D,);
    const VARIES: AxisSet = D::VARIES;
    const DIMS: &'static [DimInfo] = &[D::INFO];
}

impl<D: Dim, E: Dim> Feature for (D, E) {
    type Alone = ((D, E),);
    const VARIES: AxisSet = D::VARIES.joined(E::VARIES);
    const DIMS: &'static [DimInfo] = &[D::INFO, E::INFO];
}

/// A feature of which nothing is split.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a whole dim or pair of dims",
    note = "name the dims of a layer unsplit (`Linear<Hidden, Ffn>`); `#[sharded(..)]` on the field splits them"
)]
pub trait WholeFeature: Feature {
    /// The same feature cut over `A`, at its first dim.
    type Split<A: Axis>: Feature;
}

impl<D: Whole> WholeFeature for D {
    type Split<A: Axis> = Split<D, A>;
}

impl<D: Whole, E: Whole> WholeFeature for (D, E) {
    type Split<A: Axis> = (Split<D, A>, E);
}

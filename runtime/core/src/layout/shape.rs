//! Shapes (tuples of dims) and features (the trailing dims that a layer reads or writes).

use super::sealed::Seal;
use super::usage::{OneDimPerAxis, UsageSet};
use super::{
    Axis, AxisGroup, AxisSet, Dim, DimInfo, Here, ModelAxis, OnEveryRank, SameShape, Split, Whole,
};

/// [`Dims`] with at most one dim over each mesh axis, once: a shape that a tensor can be created with.
///
/// Code that is generic in dims and creates tensors needs the bound `where (B, S): Shape`. This function is refused, as
/// `Tp` would split two dims of the result:
///
/// ```compile_fail,E0277
/// use meshwright::prelude::*;
///
/// dims! { Batch @ data, Seq, Ffn }
///
/// fn twice(rank: &Rank) -> Tensor<(Batch, Split<Seq, Tp>, Split<Ffn, Tp>)> {
///     Tensor::from_fn(rank, &[2, 4, 6], |_| 1.0)
/// }
/// ```
pub trait Shape: Dims {}

impl<S: Dims> Shape for S where <S::Usage as UsageSet>::Verdict: OneDimPerAxis<S> {}

/// The dims of a tensor, outermost first: a tuple of 1 to 5 dims.
///
/// The shape of a weight may group its dims by input and output: `(Hidden, (Heads, HeadDim))`. A bias has output dims
/// only: `((Heads, HeadDim),)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a shape",
    note = "a shape is a tuple of 1 to 5 dims: `(Batch, Seq, Hidden)`; of one dim: `(Hidden,)`"
)]
pub trait Dims: SameShape<Self, Combined = Self> + 'static {
    /// The axes over which ranks hold different shards.
    const VARIES: AxisSet;
    /// The dims, outermost first.
    const DIMS: &'static [DimInfo];
    /// Number of leading dims that count stacked weights: 1 of [`Stacked`](super::Stacked), 0 of all others.
    const STACKS: usize = 0;
    /// Number of input dims behind these, if this is the shape of a weight; the others are output dims.
    const READS: usize = 1;
    /// The number of dims that each mesh axis distributes, as a type.
    type Usage: UsageSet;
    /// The same dims without groups: `(Hidden, Heads, HeadDim)` for `(Hidden, (Heads, HeadDim))`.
    type Ungrouped: Dims;
    #[doc(hidden)]
    const SEAL: Seal;
}

/// Usage of no axis.
type NoUse = <Here as AxisGroup>::Usage;
type Plus<U, D> = <U as UsageSet>::Plus<<D as Dim>::Usage>;

/// The combined usage of several dims.
macro_rules! usage {
    ($dim:ident) => { <$dim as Dim>::Usage };
    ($dim:ident $($rest:ident)+) => { Plus<usage!($($rest)+), $dim> };
}

macro_rules! shapes {
    ($(($($dim:ident),+))*) => {$(
        impl<$($dim: Dim),+> Dims for ($($dim,)+) {
            const VARIES: AxisSet = AxisSet::NONE$(.disjoint_union($dim::VARIES))+;
            const DIMS: &'static [DimInfo] = &[$($dim::INFO),+];
            type Usage = usage!($($dim)+);
            type Ungrouped = ($($dim,)+);
            const SEAL: Seal = Seal::new();
        }
    )*};
}

impl Dims for () {
    const VARIES: AxisSet = AxisSet::NONE;
    const DIMS: &'static [DimInfo] = &[];
    const READS: usize = 0;
    type Usage = NoUse;
    type Ungrouped = ();
    const SEAL: Seal = Seal::new();
}

shapes! { (A) (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E) }

macro_rules! grouped_shapes {
    ($(<$($dim:ident),+> $shape:ty, reads $reads:literal;)*) => {$(
        impl<$($dim: Dim),+> Dims for $shape {
            const VARIES: AxisSet = AxisSet::NONE$(.disjoint_union($dim::VARIES))+;
            const DIMS: &'static [DimInfo] = &[$($dim::INFO),+];
            const READS: usize = $reads;
            type Usage = usage!($($dim)+);
            type Ungrouped = ($($dim,)+);
            const SEAL: Seal = Seal::new();
        }
    )*};
}

grouped_shapes! {
    <A, B> ((A, B),), reads 0;
    <A, B, C> (A, (B, C)), reads 1;
    <A, B, C> ((A, B), C), reads 2;
    <A, B, C, D> ((A, B), (C, D)), reads 2;
}

/// The trailing dims that a layer reads or writes: one dim, or a pair such as `(Heads, HeadDim)`, which is split along
/// its first dim.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a dim nor a pair of dims",
    note = "a layer reads and writes one dim (`Hidden`) or a pair (`(Heads, HeadDim)`)"
)]
pub trait Feature: 'static {
    /// The shape with only these dims, as that of a bias.
    type Alone: Dims;
    /// The axes over which ranks hold different shards.
    const VARIES: AxisSet;
    /// The dims, outermost first.
    const DIMS: &'static [DimInfo];
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<D: Dim> Feature for D {
    type Alone = (D,);
    const VARIES: AxisSet = D::VARIES;
    const DIMS: &'static [DimInfo] = &[D::INFO];
    const SEAL: Seal = Seal::new();
}

impl<D: Dim, E: Dim> Feature for (D, E) {
    type Alone = ((D, E),);
    const VARIES: AxisSet = D::VARIES.disjoint_union(E::VARIES);
    const DIMS: &'static [DimInfo] = &[D::INFO, E::INFO];
    const SEAL: Seal = Seal::new();
}

/// A feature without a split dim.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a whole dim or pair of dims",
    note = "name the dims of a layer unsplit (`Linear<Hidden, Ffn>`); `#[sharded(..)]` on the field splits them"
)]
pub trait WholeFeature: Feature {
    /// The feature with its first dim split over `A`.
    type Split<A: Axis>: Feature;
}

impl<D: Whole> WholeFeature for D {
    type Split<A: Axis> = Split<D, A>;
}

impl<D: Whole, E: Whole> WholeFeature for (D, E) {
    type Split<A: Axis> = (Split<D, A>, E);
}

/// A feature that is whole on every rank: the input and output of layers before they are sharded.
#[diagnostic::on_unimplemented(
    message = "a layer cannot read or write `{Self}`: each rank has only a shard of it",
    label = "one of its dims is split, declared over an axis, or not declared as a dim",
    note = "declare the dims of layers without `@`, and name them unsplit: `#[sharded(..)]` on the field splits them"
)]
pub trait LocalFeature: WholeFeature {
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<D: Whole> LocalFeature for D
where
    D::Home: OnEveryRank<D>,
{
    const SEAL: Seal = Seal::new();
}

impl<D: Whole, E: Whole> LocalFeature for (D, E)
where
    D::Home: OnEveryRank<D>,
    E::Home: OnEveryRank<E>,
{
    const SEAL: Seal = Seal::new();
}

/// A dim of a parameter: declared without `@`, whole or split over an axis of tensor parallelism.
#[diagnostic::on_unimplemented(
    message = "a parameter cannot have the dim `{Self}`",
    label = "distributed over an axis whose ranks compute with the same parameters",
    note = "the ranks of the axis have different samples, or shards of the sequence: each would train a shard of the \
            parameter on only its own data",
    note = "a parameter's dims are declared without `@`, and split over `Tp` if at all"
)]
pub trait ParamDim: Dim {
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<D: Whole> ParamDim for D
where
    D::Home: OnEveryRank<D>,
{
    const SEAL: Seal = Seal::new();
}

impl<D: Whole, A: ModelAxis> ParamDim for Split<D, A>
where
    D::Home: OnEveryRank<D>,
{
    const SEAL: Seal = Seal::new();
}

/// The shape of a parameter: dims declared without `@`, whole or split over an axis of tensor parallelism.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the shape of a parameter",
    note = "a parameter is shaped `(Hidden,)`, `(Hidden, Ffn)` or `(Hidden, (Heads, HeadDim))`; a weight of each \
            expert, `Stacked<Experts, Hidden, Ffn>`"
)]
pub trait ParamShape: Shape {}

macro_rules! param_shapes {
    ($(<$($dim:ident),+> $shape:ty;)*) => {$(
        impl<$($dim: ParamDim),+> ParamShape for $shape where $shape: Shape {}
    )*};
}

impl ParamShape for () {}

param_shapes! {
    <A> (A,);
    <A, B> (A, B);
    <A, B, C> (A, B, C);
    <A, B, C, D> (A, B, C, D);
    <A, B, C, D, E> (A, B, C, D, E);
    <A, B> ((A, B),);
    <A, B, C> (A, (B, C));
    <A, B, C> ((A, B), C);
    <A, B, C, D> ((A, B), (C, D));
}

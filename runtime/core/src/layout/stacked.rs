//! The shape of several weights in one parameter.

use std::marker::PhantomData;

use super::sealed::Seal;
use super::usage::UsageSet;
use super::{
    AxisSet, Dim, DimInfo, Dims, Fsdp, OnEveryRank, Outside, ParamDim, ParamShape, Shape, Split,
    SplitAxes, Whole,
};

/// The shape of a weight `(I, O)` for each element of `E`, such as for each expert. `O` may be a pair of dims, and the
/// shape of biases over `O` is `Stacked<E, (), O>`.
///
/// Unlike the dims of a weight, `E` may be split over several of `ep`, `cp` and `tp`: `Stacked<Split<Experts, (Ep,
/// Tp)>, Hidden, Ffn>`. Ranks of these axes hold the weights of different experts, and no output that leaves `E` out,
/// or is distributed over the same axis otherwise, can be computed from them without a sum.
pub struct Stacked<E, I, O>(PhantomData<(E, I, O)>);

impl<E: Dim, I: Dim, O: Dim> Dims for Stacked<E, I, O> {
    const VARIES: AxisSet = E::VARIES.disjoint_union(I::VARIES).disjoint_union(O::VARIES);
    const DIMS: &'static [DimInfo] = &[E::INFO, I::INFO, O::INFO];
    const STACKS: usize = 1;
    type Ungrouped = (E, I, O);
    type Usage = <<E::Usage as UsageSet>::Plus<I::Usage> as UsageSet>::Plus<O::Usage>;
    const SEAL: Seal = Seal::new();
}

impl<E: Dim, I: Dim, F: Dim, G: Dim> Dims for Stacked<E, I, (F, G)> {
    const VARIES: AxisSet = <Stacked<E, I, F> as Dims>::VARIES.disjoint_union(G::VARIES);
    const DIMS: &'static [DimInfo] = &[E::INFO, I::INFO, F::INFO, G::INFO];
    const STACKS: usize = 1;
    type Ungrouped = (E, I, F, G);
    type Usage = <<Stacked<E, I, F> as Dims>::Usage as UsageSet>::Plus<G::Usage>;
    const SEAL: Seal = Seal::new();
}

impl<E: Dim, O: Dim> Dims for Stacked<E, (), O> {
    const VARIES: AxisSet = E::VARIES.disjoint_union(O::VARIES);
    const DIMS: &'static [DimInfo] = &[E::INFO, O::INFO];
    const STACKS: usize = 1;
    const READS: usize = 0;
    type Ungrouped = (E, O);
    type Usage = <E::Usage as UsageSet>::Plus<O::Usage>;
    const SEAL: Seal = Seal::new();
}

impl<E: Dim, F: Dim, G: Dim> Dims for Stacked<E, (), (F, G)> {
    const VARIES: AxisSet = <Stacked<E, (), F> as Dims>::VARIES.disjoint_union(G::VARIES);
    const DIMS: &'static [DimInfo] = &[E::INFO, F::INFO, G::INFO];
    const STACKS: usize = 1;
    const READS: usize = 0;
    type Ungrouped = (E, F, G);
    type Usage = <<Stacked<E, (), F> as Dims>::Usage as UsageSet>::Plus<G::Usage>;
    const SEAL: Seal = Seal::new();
}

/// A dim that counts stacked weights: declared without `@`, whole or split over `ep`, `cp`, `tp` or several of them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot count the weights of a stack",
    label = "not a dim declared without `@`, whole or split over `Ep`, `Cp` or `Tp`",
    note = "parameters are equal on the ranks of `Dp`, gathered from the ranks of `Fsdp`, and divided into stages over \
            `Pp`: experts are split over `Ep`, `Cp`, `Tp` or several of them",
    note = "experts are `Stacked<Split<Experts, Ep>, Hidden, Ffn>`, of a dim declared without `@`"
)]
pub trait StackDim: Dim {
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<D: Whole> StackDim for D
where
    D::Home: OnEveryRank<D>,
{
    const SEAL: Seal = Seal::new();
}

impl<D: Whole, A: SplitAxes> StackDim for Split<D, A>
where
    D::Home: OnEveryRank<D>,
    Fsdp: Outside<A>,
{
    const SEAL: Seal = Seal::new();
}

impl<E: StackDim, I: ParamDim, O: ParamDim> ParamShape for Stacked<E, I, O> where
    Stacked<E, I, O>: Shape
{
}

//! Tensor dims as marker types, and their split over mesh axes.

use std::any::TypeId;
use std::marker::PhantomData;

use super::sealed::Seal;
use super::usage::UsageSet;
use super::{AxisGroup, AxisSet, Data, DimInfo, Here, Home, SplitAxes};

/// One dim of a tensor, possibly split: a dim declared by [`dims!`](meshwright_macros::dims), or a [`Split`] of one.
///
/// Its items follow from the declaration; there is nothing to implement.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a dim",
    note = "declare it: `dims! {{ Batch @ data, Seq, Hidden }}`",
    note = "a split is that of a declared dim, over an axis or over several as a tuple, from the outermost to the \
            innermost and each once: `Split<Experts, (Ep, Tp)>`; the order is `Pp`, `Dp`, `Fsdp`, `Ep`, `Cp`, `Tp`"
)]
pub trait Dim: Sized + 'static {
    /// The declared name, without a split.
    const NAME: &'static str;
    /// The axes over which ranks hold different shards of this dim.
    const VARIES: AxisSet;
    /// The dim's description at run time.
    const INFO: DimInfo;
    /// The axes of [`VARIES`](Self::VARIES) as a type.
    type Usage: UsageSet;
    #[doc(hidden)]
    const SEAL: Seal;
}

/// A dim that is not split further than by its declaration (`@ data`). Implemented by
/// [`dims!`](meshwright_macros::dims).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a whole dim",
    label = "needs a dim declared with `dims!`, and not split",
    note = "name the dims of a layer unsplit, `Linear<Hidden, Ffn>`: `#[sharded(..)]` on the field splits them",
    note = "`.gather(Dim)` makes a `Split<Dim, A>` of a tensor whole"
)]
pub trait Whole: Sized + 'static {
    /// The declared name, equal to [`Dim::NAME`].
    const DECLARED_NAME: &'static str;
    /// The axes that distribute the dim by declaration.
    type Home: Home;
}

#[diagnostic::do_not_recommend]
impl<D: Whole> Dim for D {
    const NAME: &'static str = D::DECLARED_NAME;
    const VARIES: AxisSet = D::Home::AXES;
    const INFO: DimInfo = DimInfo {
        name: D::DECLARED_NAME,
        key: TypeId::of::<D>,
        split: AxisSet::NONE,
        home: D::Home::AXES,
        is_routed: false,
    };
    type Usage = <D::Home as AxisGroup>::Usage;
    const SEAL: Seal = Seal::new();
}

/// A dim that is whole on every rank: declared without `@ axis`.
#[diagnostic::on_unimplemented(
    message = "a rank holds only a shard of `{Self}`, but this operation reads the whole dim",
    label = "needs the whole dim on each rank",
    note = "`.gather(Dim)` or the entry of a column-parallel layer makes a `Split<Dim, A>` whole",
    note = "a dim declared over an axis cannot be gathered: attention to a `Seq @ cp` is context-parallel, and other \
            dims that an operation reads are declared without `@`"
)]
pub trait Local: Whole<Home = Here> {}

/// The home of a dim `D` that is whole on every rank: [`Here`].
#[diagnostic::on_unimplemented(
    message = "`{D}` is declared over `{Self}`, so each rank has only a shard of it: no layer or parameter can have \
               this dim",
    label = "this needs the whole `{D}` on each rank",
    note = "declare the dims of layers and parameters without `@`: `#[sharded(tp = ..)]` on a field splits them over \
            the ranks of tp, and `#[sharded(ep = \"experts\")]` experts over the ranks of ep",
    note = "a dim declared over an axis, such as `Batch @ data` or `Seq @ cp`, is one along which a layer treats all \
            elements alike"
)]
pub trait OnEveryRank<D>: Home {
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<D> OnEveryRank<D> for Here {
    const SEAL: Seal = Seal::new();
}

/// A dim of samples, distributed over the data axes: declared `@ data`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not distributed over all data axes",
    label = "each data-parallel rank reads different samples of this dim",
    note = "declare it `dims! {{ {Self} @ data, .. }}`; `@ dp` or `@ fsdp` alone is one of the data axes, and without \
            `@` every rank would count all samples as its own"
)]
pub trait BatchDim: Whole<Home = Data> {}

/// Dim `D` split over mesh axis `A`, or over several as a tuple ([`SplitAxes`]): rank `r` of `p` holds elements `r*n/p
/// .. (r+1)*n/p` of the `n` elements that the home of `D` leaves to its group.
pub struct Split<D, A>(PhantomData<(D, A)>);

#[diagnostic::do_not_recommend]
impl<D: Whole, A: SplitAxes> Dim for Split<D, A> {
    const NAME: &'static str = D::DECLARED_NAME;
    const VARIES: AxisSet = <D as Dim>::VARIES.disjoint_union(A::AXES);
    const INFO: DimInfo = DimInfo { split: A::AXES, ..<D as Dim>::INFO };
    type Usage = <<D as Dim>::Usage as UsageSet>::Plus<A::Usage>;
    const SEAL: Seal = Seal::new();
}

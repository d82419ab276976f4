//! Tensor dims as marker types, and their split over a mesh axis.

use std::any::TypeId;
use std::marker::PhantomData;

use super::sealed::Seal;
use super::usage::UsageSet;
use super::{Axis, AxisGroup, AxisId, AxisSet, Data, Here, Home};

/// One dim of a tensor, possibly split: a dim declared by [`dims!`](crate::dims), or a [`Split`] of one.
///
/// What it says follows from the declaration; there is nothing to implement.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a dim",
    note = "declare it: `dims! {{ Batch @ data, Seq, Hidden }}`"
)]
pub trait Dim: Sized + 'static {
    /// The declared name, without the split.
    const NAME: &'static str;
    /// The axes over which ranks hold different parts of this dim.
    const VARIES: AxisSet;
    /// What is known of the dim at run time.
    const INFO: DimInfo;
    /// The axes of [`VARIES`](Self::VARIES) as a type.
    type Usage: UsageSet;
    #[doc(hidden)]
    const SEAL: Seal;
}

/// A dim that is not split: all of it, or all that its home (`@ data`) leaves to a rank. Implemented by
/// [`dims!`](crate::dims).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a whole dim",
    label = "needs a dim declared with `dims!`, and not split",
    note = "in the type of a layer name dims unsplit, `Linear<Hidden, Ffn>`: `#[sharded(..)]` on the field splits them",
    note = "a split dim of a tensor is made whole by `.gather(Dim)`"
)]
pub trait Whole: Sized + 'static {
    /// The declared name, which is also [`Dim::NAME`].
    const DECLARED_NAME: &'static str;
    /// Where the dim lives.
    type Home: Home;
}

#[diagnostic::do_not_recommend]
impl<D: Whole> Dim for D {
    const NAME: &'static str = D::DECLARED_NAME;
    const VARIES: AxisSet = D::Home::AXES;
    const INFO: DimInfo =
        DimInfo { name: D::DECLARED_NAME, key: TypeId::of::<D>, split: None, home: D::Home::AXES };
    type Usage = <D::Home as AxisGroup>::Usage;
    const SEAL: Seal = Seal::new();
}

/// A dim of which every rank sees everything: declared without `@ axis`.
#[diagnostic::on_unimplemented(
    message = "a rank holds only a part of `{Self}`, but this reads along all of it",
    label = "needs all of the dim on each rank",
    note = "a split dim is made whole by `.gather(Dim)`, and by column-parallel layers on the way in",
    note = "a dim declared over an axis, `Seq @ cp`, needs a context-parallel attention; declare it without `@` to keep it whole"
)]
pub trait Local: Whole<Home = Here> {}

/// The home of a dim `D` of which every rank has all: [`Here`].
#[diagnostic::on_unimplemented(
    message = "`{D}` is declared over `{Self}`, so each rank has a part of it only: no layer or parameter can have this dim",
    label = "this needs all of `{D}` on each rank",
    note = "declare the dims of layers and parameters without `@`: `#[sharded(..)]` on a field splits them over tensor-parallel ranks",
    note = "a dim declared over an axis, such as `Batch @ data` or `Seq @ cp`, is one along which a layer does the same for each element"
)]
pub trait OnEveryRank<D>: Home {
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<D> OnEveryRank<D> for Here {
    const SEAL: Seal = Seal::new();
}

/// A dim of samples, of which ranks of the data axes hold different ones: declared `@ data`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not distributed over all data axes",
    label = "each data-parallel rank reads other samples of this dim",
    note = "declare it `dims! {{ {Self} @ data, .. }}`; `@ dp` or `@ fsdp` alone is one of the data axes, and without `@` every rank would count all samples as its own"
)]
pub trait BatchDim: Whole<Home = Data> {}

/// Dim `D` cut over mesh axis `A`: rank `r` of `p` holds elements `r*n/p .. (r+1)*n/p`, of all or of those that the
/// home of `D` leaves to it.
pub struct Split<D, A>(PhantomData<(D, A)>);

#[diagnostic::do_not_recommend]
impl<D: Whole, A: Axis> Dim for Split<D, A> {
    const NAME: &'static str = D::DECLARED_NAME;
    const VARIES: AxisSet = <D as Dim>::VARIES.joined(A::AXES);
    const INFO: DimInfo = DimInfo { split: Some(A::ID), ..<D as Dim>::INFO };
    type Usage = <<D as Dim>::Usage as UsageSet>::Plus<A::Usage>;
    const SEAL: Seal = Seal::new();
}

/// A dim, as run-time code sees it.
#[derive(Debug, Clone, Copy)]
pub struct DimInfo {
    /// The declared name.
    pub name: &'static str,
    /// Identifies the declared dim, whatever its name.
    pub key: fn() -> TypeId,
    /// The axis it is cut over, if any.
    pub split: Option<AxisId>,
    /// The axes it is distributed over by declaration.
    pub home: AxisSet,
}

impl DimInfo {
    /// The axes over which ranks hold different parts of the dim.
    pub fn axes(&self) -> AxisSet {
        self.split.map_or(self.home, |axis| self.home.or(AxisSet::of(axis)))
    }

    /// Whether both are the same declared dim, split alike.
    pub fn is(&self, other: &DimInfo) -> bool {
        (self.key)() == (other.key)() && self.split == other.split
    }
}

impl std::fmt::Display for DimInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.split {
            Some(axis) => write!(f, "Split<{}, {axis}>", self.name),
            None => f.write_str(self.name),
        }
    }
}

//! Mesh axes as types, for the types of tensors.

use super::sealed::Seal;
use super::usage::{Distinct, Once, Unused, UsageSet};
use super::{AxisId, AxisSet};

/// A set of mesh axes as a type: one axis, several as a tuple, all data axes, or none.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a mesh axis",
    note = "the axes are `Pp`, `Dp`, `Fsdp`, `Ep`, `Cp` and `Tp`; `Data` stands for `Dp`, `Fsdp` and `Ep` together"
)]
pub trait AxisGroup: 'static {
    /// The axes.
    const AXES: AxisSet;
    /// The same set as a type.
    type Usage: UsageSet;
    #[doc(hidden)]
    const SEAL: Seal;
}

/// A single mesh axis as a type.
pub trait Axis: AxisGroup {
    /// The axis that this type represents.
    const ID: AxisId;
}

/// Axes over which a dim can be split: one axis, or several as a tuple, from the outermost to the innermost, such as
/// `(Ep, Cp, Tp)`. So each set of axes has one type.
#[diagnostic::on_unimplemented(
    message = "no dim can be split over `{Self}`",
    label = "neither an axis nor a tuple of two or three axes, from the outermost to the innermost",
    note = "the axes are, from the outermost on, `Pp`, `Dp`, `Fsdp`, `Ep`, `Cp` and `Tp`: `Split<Experts, (Ep, Tp)>`"
)]
pub trait SplitAxes: AxisGroup {}

impl<A: Axis> SplitAxes for A {}

impl<A: Axis + Outside<B>, B: Axis> SplitAxes for (A, B) {}

impl<A: Axis + Outside<B>, B: Axis + Outside<C>, C: Axis> SplitAxes for (A, B, C) {}

impl<A: Axis + Outside<B>, B: Axis> AxisGroup for (A, B) {
    const AXES: AxisSet = A::AXES.disjoint_union(B::AXES);
    type Usage = <A::Usage as UsageSet>::Plus<B::Usage>;
    const SEAL: Seal = Seal::new();
}

impl<A: Axis + Outside<B>, B: Axis + Outside<C>, C: Axis> AxisGroup for (A, B, C) {
    const AXES: AxisSet = A::AXES.disjoint_union(B::AXES).disjoint_union(C::AXES);
    type Usage = <<A::Usage as UsageSet>::Plus<B::Usage> as UsageSet>::Plus<C::Usage>;
    const SEAL: Seal = Seal::new();
}

/// An axis whose neighboring ranks are further apart than neighbors along `A`: an outer axis of the mesh.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not outside of `{A}` on the mesh",
    label = "axes of a split are written from the outermost to the innermost, each once",
    note = "the axes are, from the outermost on, `Pp`, `Dp`, `Fsdp`, `Ep`, `Cp` and `Tp`; so each set of axes has one \
            type"
)]
pub trait Outside<A> {}

impl<X: Outside<A>, A, B> Outside<(A, B)> for X {}

impl<X: Outside<A>, A, B, C> Outside<(A, B, C)> for X {}

/// The axes that distribute a dim by declaration: none ([`Here`]), or those after `@` (`Batch @ data`, `Seq @ cp`).
///
/// Neither `Tp` nor `Pp` is a home: the dims that tensor parallelism splits differ from layer to layer, so they are
/// part of the type of a layer or tensor.
#[diagnostic::on_unimplemented(
    message = "no dim can be declared over `{Self}`",
    label = "not the home of a dim",
    note = "a dim is declared without an axis, or over `data`, `dp`, `fsdp`, `ep` or `cp`",
    note = "tensor-parallel splits are declared where they apply: `#[sharded(tp = \"col\")]` on a field, `Split<Ffn, \
            Tp>` in the type of a tensor"
)]
pub trait Home: AxisGroup + ApartFrom<Tp> + ApartFrom<Pp> {}

/// A home that does not use axis `A`, so that another dim of the tensor can be split over `A`.
#[diagnostic::on_unimplemented(
    message = "a tensor with a dim distributed over `{Self}` cannot be split over `{A}`",
    label = "this axis already distributes a dim of the tensor"
)]
pub trait ApartFrom<A> {}

/// An axis over which parameters can be split. Ranks of other axes compute with the same parameters, on different
/// samples or shards of a sequence.
#[diagnostic::on_unimplemented(
    message = "the parameters of a layer cannot be split over `{Self}`",
    label = "not an axis of tensor parallelism",
    note = "`#[sharded(tp = \"col\")]`, `\"row\"` and `\"vocab\"` split over `Tp`",
    note = "sharding over `fsdp` is set by `--zero`, not by a type; the ranks of a data axis read different samples, \
            so a layer cannot be split over it"
)]
pub trait ModelAxis: Axis {}

/// The home of a dim that is not distributed: it is whole on every rank.
#[derive(Debug, Clone, Copy)]
pub struct Here;

/// The data axes together: `dp x fsdp x ep`.
#[derive(Debug, Clone, Copy)]
pub struct Data;

macro_rules! axes {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name;

        impl Axis for $name {
            const ID: AxisId = AxisId::$name;
        }
    )*};
}

axes! {
    /// Pipeline parallelism.
    Pp;
    /// Data parallelism with replicated parameters.
    Dp;
    /// Data parallelism with sharded parameters.
    Fsdp;
    /// Expert parallelism.
    Ep;
    /// Context parallelism.
    Cp;
    /// Tensor parallelism.
    Tp;
}

macro_rules! order {
    ($($outer:ident outside $($inner:ident)+;)*) => {$($(
        impl Outside<$inner> for $outer {}
    )+)*};
}

order! {
    Pp outside Dp Fsdp Ep Cp Tp;
    Dp outside Fsdp Ep Cp Tp;
    Fsdp outside Ep Cp Tp;
    Ep outside Cp Tp;
    Cp outside Tp;
}

macro_rules! axis_groups {
    ($($name:ident: $axes:expr, [$pp:ident $dp:ident $fsdp:ident $ep:ident $cp:ident $tp:ident];)*) => {$(
        impl AxisGroup for $name {
            const AXES: AxisSet = $axes;
            type Usage = ($pp<Pp>, $dp<Dp>, $fsdp<Fsdp>, $ep<Ep>, $cp<Cp>, $tp<Tp>);
            const SEAL: Seal = Seal::new();
        }
    )*};
}

axis_groups! {
    Here: AxisSet::NONE, [Unused Unused Unused Unused Unused Unused];
    Data: AxisSet::DATA, [Unused Once Once Once Unused Unused];
    Pp: AxisSet::of(AxisId::Pp), [Once Unused Unused Unused Unused Unused];
    Dp: AxisSet::of(AxisId::Dp), [Unused Once Unused Unused Unused Unused];
    Fsdp: AxisSet::of(AxisId::Fsdp), [Unused Unused Once Unused Unused Unused];
    Ep: AxisSet::of(AxisId::Ep), [Unused Unused Unused Once Unused Unused];
    Cp: AxisSet::of(AxisId::Cp), [Unused Unused Unused Unused Once Unused];
    Tp: AxisSet::of(AxisId::Tp), [Unused Unused Unused Unused Unused Once];
}

/// [`AxisGroup::Usage`] of [`Data`].
type DataUsage = (Unused<Pp>, Once<Dp>, Once<Fsdp>, Once<Ep>, Unused<Cp>, Unused<Tp>);

/// The home of a sequence of tokens: on every rank, or distributed over `cp`. So tokens of samples and positions have a
/// [`Shape`](super::Shape), also in code that is generic in the model.
#[diagnostic::on_unimplemented(
    message = "the sequence of a language model cannot be distributed over `{Self}`",
    label = "samples are distributed over the data axes, not positions",
    note = "declare it without an axis, or over `cp`: `dims! {{ Batch @ data, Seq @ cp }}`"
)]
pub trait SequenceHome:
    Home + AxisGroup<Usage: UsageSet<Plus<DataUsage>: UsageSet<Verdict = Distinct>>>
{
    #[doc(hidden)]
    const SEAL: Seal;
}

impl SequenceHome for Here {
    const SEAL: Seal = Seal::new();
}

impl SequenceHome for Cp {
    const SEAL: Seal = Seal::new();
}

macro_rules! homes {
    ($($home:ident apart from $($axis:ident)*;)*) => {$(
        impl Home for $home {}
        $(impl ApartFrom<$axis> for $home {})*
    )*};
}

homes! {
    Here apart from Pp Dp Fsdp Ep Cp Tp;
    Data apart from Pp Cp Tp;
    Dp apart from Pp Fsdp Ep Cp Tp;
    Fsdp apart from Pp Dp Ep Cp Tp;
    Ep apart from Pp Dp Fsdp Cp Tp;
    Cp apart from Pp Dp Fsdp Ep Tp;
}

impl ModelAxis for Tp {}

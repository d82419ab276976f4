//! Tensor dims as marker types, and their split over a mesh axis.

use std::any::TypeId;
use std::marker::PhantomData;

use super::{Axis, AxisId, AxisSet, Home};

/// One dim of a tensor, possibly split. Implemented by [`dims!`](crate::dims) and by [`Split`].
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
    const INFO: DimInfo = DimInfo::declared::<Self>(Self::NAME, Self::VARIES);
}

/// A dim that is not split: all of it, or all that its home (`@ data`) leaves to a rank.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a whole dim",
    label = "needs a dim declared with `dims!`, and not split",
    note = "in the type of a layer name dims unsplit, `Linear<Hidden, Ffn>`: `#[sharded(..)]` on the field splits them",
    note = "a split dim of a tensor is made whole by `.gather(Dim)`"
)]
pub trait Whole: Dim {
    /// Where the dim lives.
    type Home: Home;
}

/// A dim of which every rank sees everything: declared without `@ axis`.
#[diagnostic::on_unimplemented(
    message = "a rank holds only a part of `{Self}`, but this reads along all of it",
    label = "needs all of the sequence on each rank",
    note = "a split dim is made whole by `.gather(Dim)`, and by column-parallel layers on the way in",
    note = "a dim declared over an axis, `Seq @ cp`, needs a context-parallel attention; declare it without `@` to keep it whole"
)]
pub trait Local: Whole {}

/// Dim `D` cut over mesh axis `A`: rank `r` of `p` holds elements `r*n/p .. (r+1)*n/p`.
pub struct Split<D, A>(PhantomData<(D, A)>);

impl<D: Whole, A: Axis> Dim for Split<D, A> {
    const NAME: &'static str = D::NAME;
    const VARIES: AxisSet = D::VARIES.joined(A::AXES);
    const INFO: DimInfo = DimInfo { split: Some(A::ID), ..D::INFO };
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

    /// The description of a declared, unsplit dim.
    pub const fn declared<D: 'static>(name: &'static str, home: AxisSet) -> DimInfo {
        DimInfo { name, key: TypeId::of::<D>, split: None, home }
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

//! What `#[model]` and `#[forward]` say of a struct besides building it.

use super::Build;

/// A struct with `#[model]`.
pub trait Model: Build {
    /// Its fields as written.
    fn describe() -> ModelDescription;
}

/// A model as its author wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelDescription {
    /// Name of the struct.
    pub name: &'static str,
    /// Its fields in order.
    pub fields: &'static [FieldDescription],
}

/// A field of a model as its author wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldDescription {
    /// Name of the field.
    pub name: &'static str,
    /// Its type, before sharding.
    pub ty: &'static str,
    /// What `#[sharded(..)]` says: `tp = "col"`, `tp = "row", fsdp`.
    pub sharded: Option<&'static str>,
    /// What `#[tied(..)]` says.
    pub tied: Option<&'static str>,
    /// What `#[recompute(..)]` says: `every = 2, offload`. Empty for a plain `#[recompute]`.
    pub recompute: Option<&'static str>,
}

/// What a `forward` that is declared to take a `T` accepts: a `T`.
#[diagnostic::on_unimplemented(
    message = "this `forward` takes `{T}`, not `{Self}`",
    label = "not what `forward` takes",
    note = "the dims must be the same and split alike: `.gather(Dim)` makes a split dim whole, `.slice(Dim, Tp)` splits a whole one",
    note = "a partial sum becomes a value by `.all_reduce()` or `.reduce_scatter(Dim)`, what is in flight by `.wait()`"
)]
pub trait Fits<T> {
    #[doc(hidden)]
    fn fits(&self) -> &T;
}

#[diagnostic::do_not_recommend]
impl<T> Fits<T> for T {
    fn fits(&self) -> &T {
        self
    }
}

/// What a `forward` that is declared to return a `T` may return: a `T`.
#[diagnostic::on_unimplemented(
    message = "this `forward` promises `{T}`, but returns `{Self}`",
    label = "not what `forward` promises",
    note = "a partial sum is not a value yet: end with `.all_reduce()`, or with `.reduce_scatter(Dim)` for a sequence-parallel stream",
    note = "the dims must be split as promised: `scatter = Dim` on a row-parallel layer splits its result, `.gather(Dim)` makes a split dim whole, `.slice(Dim, Tp)` splits a whole one"
)]
pub trait Promised<T> {
    #[doc(hidden)]
    fn promised(self) -> T;
}

#[diagnostic::do_not_recommend]
impl<T> Promised<T> for T {
    fn promised(self) -> T {
        self
    }
}

/// `x`, as the result of a `forward` that promises a `T`.
#[doc(hidden)]
pub fn returned<T>(x: impl Promised<T>) -> T {
    x.promised()
}

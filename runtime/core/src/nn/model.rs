//! Model descriptions from `#[model]`, and the checks of inputs and outputs from `#[forward]`.

use crate::layout::{Dim, Split, Tp, Whole};
use crate::tensor::Tensor;

use super::Build;

/// A struct with `#[model]`.
pub trait Model: Build {
    /// Returns the description of the model as it is written.
    fn describe() -> ModelDescription;
}

/// A model as it is written in the source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelDescription {
    /// Name of the struct.
    pub name: &'static str,
    /// The fields in order.
    pub fields: &'static [FieldDescription],
}

/// A field of a model as it is written in the source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FieldDescription {
    /// Name of the field.
    pub name: &'static str,
    /// The type, before sharding.
    pub ty: &'static str,
    /// The arguments of `#[sharded(..)]`: `tp = "col"`, `tp = "row", fsdp`.
    pub sharded: Option<&'static str>,
    /// The arguments of `#[tied(..)]`.
    pub tied: Option<&'static str>,
    /// True with `#[shared]`.
    pub shared: bool,
    /// True with `#[frozen]`.
    pub frozen: bool,
    /// The arguments of `#[init(..)]`: `normal(0.02)`, `bias = zeros`.
    pub init: Option<&'static str>,
    /// The arguments of `#[recompute(..)]`: `every = 2, offload`. Empty for a plain `#[recompute]`.
    pub recompute: Option<&'static str>,
    /// The arguments of `#[pipeline_stage(..)]`.
    pub stage: Option<StageDescription>,
}

/// The arguments of `#[pipeline_stage(..)]` on a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StageDescription {
    /// True if the field is used after all stages, for loss and logits.
    pub last: bool,
    /// The declared cost of the field, or of each layer of a stack; a layer of the first stack costs 1.
    pub cost: Option<f64>,
}

/// An argument that a `forward` declared to take `T` accepts: a `T`.
#[diagnostic::on_unimplemented(
    message = "this `forward` takes `{T}`, not `{Self}`",
    label = "not the declared argument type",
    note = "the dims must be the same and split alike: `scatter = Dim` on a row-parallel layer or an embedding splits \
            its result, `.gather(Dim)` makes a `Split<Dim, A>` whole, `.slice(Dim, Tp)` splits a whole dim; one \
            declared `@` stays distributed",
    note = "tokens reach experts as rows, `Routed<..>`: `routing.dispatch(&x, Ep)` for `#[sharded(ep = \"experts\")]`, \
            `routing.group(&x)` for experts that every rank has",
    note = "`.all_reduce()` or `.reduce_scatter(Dim)` makes a partial sum a value, and `.wait()` completes a \
            collective in flight"
)]
pub trait ForwardInput<T> {
    #[doc(hidden)]
    fn as_declared(&self) -> &T;
}

#[diagnostic::do_not_recommend]
impl<T> ForwardInput<T> for T {
    fn as_declared(&self) -> &T {
        self
    }
}

/// A result that a `forward` declared to return `T` may have: a `T`.
#[diagnostic::on_unimplemented(
    message = "this `forward` is declared to return `{T}`, but returns `{Self}`",
    label = "not the declared result type",
    note = "a partial sum is not a value yet: reduce it by `.all_reduce()`, or by `.reduce_scatter(Dim)` for a \
            sequence-parallel stream",
    note = "the dims must be split as declared: `scatter = Dim` on a row-parallel layer splits its result, \
            `.gather(Dim)` makes a `Split<Dim, A>` whole, `.slice(Dim, Tp)` splits a whole dim; one declared `@` stays \
            distributed",
    note = "rows of experts, `Routed<..>`, go back to their tokens by `routing.combine(&rows)`"
)]
pub trait ForwardOutput<T, Found = Self> {
    #[doc(hidden)]
    fn into_declared(found: Found) -> T;
}

#[diagnostic::do_not_recommend]
impl<X, T> ForwardOutput<T, T> for X {
    fn into_declared(found: T) -> T {
        found
    }
}

/// Never implemented: the split of `D` that a `forward` is declared to return, but that its result does not have.
#[diagnostic::on_unimplemented(
    message = "this `forward` is declared to return `{T}`, but returns `{Found}`",
    label = "`{D}` is declared split, and is whole here",
    note = "a row-parallel layer splits its result by `scatter`: `#[sharded(tp = \"row\", scatter = {D})]` on the \
            layer that computes it, `#[sharded(tp = \"vocab\", scatter = {D})]` on an embedding",
    note = "`.slice({D}, Tp)` splits a tensor that has the whole dim"
)]
pub trait ScatteredOutput<D, T, Found> {
    #[doc(hidden)]
    fn never_implemented() -> !;
}

macro_rules! whole_outputs {
    ($(<$($lead:ident),*> $feature:ident;)*) => {$(
        /// Never applies; the message of its bound explains the fix. The result is not `Self`, so that other messages
        /// do not list the impl.
        impl<X, $($lead: Dim,)* D: Whole, $feature: Dim>
            ForwardOutput<Tensor<($($lead,)* Split<D, Tp>, $feature)>, Tensor<($($lead,)* D, $feature)>> for X
        where
            Split<D, Tp>: ScatteredOutput<
                D,
                Tensor<($($lead,)* Split<D, Tp>, $feature)>,
                Tensor<($($lead,)* D, $feature)>,
            >,
        {
            fn into_declared(_: Tensor<($($lead,)* D, $feature)>) -> Tensor<($($lead,)* Split<D, Tp>, $feature)> {
                <Split<D, Tp>>::never_implemented()
            }
        }
    )*};
}

whole_outputs! {
    <> F;
    <B> F;
}

/// Returns `x`, the result of a `forward` declared to return `T`; another type is a compile error.
#[doc(hidden)]
pub fn check_output<T>(x: impl ForwardOutput<T>) -> T {
    declared(x)
}

fn declared<T, X: ForwardOutput<T>>(x: X) -> T {
    X::into_declared(x)
}

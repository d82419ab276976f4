//! Models with pipeline stages, and the checks of their `forward`.

use super::super::Module;
use super::stage::StageBoundary;
use super::visitor::{StageValue, StageVisitor};

/// A model whose pipeline stages, in order, make an `Out` of an `In`. Implemented by `#[model]` for a struct with
/// `#[pipeline_stage]` on its fields, with the types of its [`StagedForward`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no pipeline stages for a `forward` without a body",
    label = "a `forward` without a body runs the fields with `#[pipeline_stage]` in order",
    note = "put `#[pipeline_stage]` on the fields of the struct, or write a body of `forward`"
)]
pub trait PipelineModel<In, Out> {
    /// Visits the stages in order.
    #[doc(hidden)]
    fn visit_fields<V: StageVisitor>(
        &self,
        visitor: &mut V,
        input: StageValue<V, In>,
    ) -> StageValue<V, Out>;
}

/// A model whose `forward` runs its pipeline stages in order. Implemented by `#[forward]` for a `forward` without a
/// body.
///
/// The code of `#[model]` takes the types of `forward` from here alone, so that a missing `forward` is one error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has pipeline stages, so it needs a `forward` without a body",
    label = "the stages, in order, are the `forward` of `{Self}`",
    note = "write `#[forward] impl {Self} {{ fn forward(&self, x: &In) -> Out; }}`, with a semicolon in place of the \
            body, and move computations between two stages into one of the stages"
)]
pub trait StagedForward:
    Module<In = <Self as StagedForward>::Input, Out = <Self as StagedForward>::Output>
    + PipelineModel<<Self as StagedForward>::Input, <Self as StagedForward>::Output>
{
    /// The input of `forward`.
    type Input: StageBoundary;
    /// The output of `forward`.
    type Output;
}

/// Visits the stages of a model, for `Module::visit_stages`.
#[doc(hidden)]
pub fn visit_model<M: StagedForward, V: StageVisitor>(
    model: &M,
    visitor: &mut V,
    input: StageValue<V, M::In>,
) -> Option<StageValue<V, M::Out>> {
    Some(model.visit_fields(visitor, input))
}

/// Requires that the input and the output of `M` can cross between pipeline stages: `#[pipeline_stage]` on its struct.
#[doc(hidden)]
pub fn check_boundaries<M: Module<In: StageBoundary, Out: StageBoundary>>() {}

/// An output of the last stage that a `forward` declared to return `T` may have: a `T`.
#[diagnostic::on_unimplemented(
    message = "this `forward` is declared to return `{T}`, but its last pipeline stage outputs `{Self}`",
    label = "outputs `{Self}`"
)]
pub trait StageOutput<T> {
    #[doc(hidden)]
    fn stage_output<V: StageVisitor>(output: StageValue<V, Self>) -> StageValue<V, T>
    where
        Self: Sized;
}

#[diagnostic::do_not_recommend]
impl<T> StageOutput<T> for T {
    fn stage_output<V: StageVisitor>(output: StageValue<V, T>) -> StageValue<V, T> {
        output
    }
}

/// Returns the output of the last stage as the output of the model; another type than `T` is a compile error.
#[doc(hidden)]
pub fn finish_stages<V: StageVisitor, T, X: StageOutput<T>>(
    output: StageValue<V, X>,
) -> StageValue<V, T> {
    X::stage_output(output)
}

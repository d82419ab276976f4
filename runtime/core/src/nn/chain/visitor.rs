//! Visitors of a chain: one generated function visits the stages, and the visitor defines the computation.

use super::stage::{PipelineStage, StageBoundary};

/// A visitor of the stages of a chain, in order.
pub trait StageVisitor: Sized {
    /// The visitor's representation of a `T` between two stages.
    type At<T>;

    /// Visits the stage in field `name`, and returns the representation of its output.
    #[track_caller]
    fn visit_stage<X, S: PipelineStage<X, Output: StageBoundary>>(
        &mut self,
        name: &'static str,
        stage: &S,
        input: Self::At<X>,
    ) -> Self::At<S::Output>;
}

/// The representation of a `T` between two stages.
///
/// A struct, because `T` cannot be inferred from `V::At<T>`.
pub struct StageValue<V: StageVisitor, T> {
    value: V::At<T>,
}

impl<V: StageVisitor, T> StageValue<V, T> {
    pub(super) fn new(value: V::At<T>) -> StageValue<V, T> {
        StageValue { value }
    }

    pub(super) fn into_value(self) -> V::At<T> {
        self.value
    }
}

/// Visits one stage; another type than the stage takes is a compile error at the type of the field.
#[doc(hidden)]
#[track_caller]
pub fn visit_stage<V: StageVisitor, X, S: PipelineStage<X, Output: StageBoundary>>(
    visitor: &mut V,
    name: &'static str,
    input: StageValue<V, X>,
    stage: &S,
) -> StageValue<V, S::Output> {
    StageValue::new(visitor.visit_stage(name, stage, input.value))
}

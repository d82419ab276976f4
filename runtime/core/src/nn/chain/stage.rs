//! Pipeline stages, and the types that can cross from one to the next.

use std::ops::Range;

use crate::layout::Internal;
use crate::tensor::SegmentData;

/// A field that can be a pipeline stage and takes an `X` from the stage before it: a model, a stack of models, or a
/// layer of this crate.
///
/// `#[forward]` implements it for models. There is no blanket impl for all layers: with one impl per type, the compiler
/// reports the innermost bound that is not met.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a pipeline stage that takes `{X}`",
    label = "not a model, a `Stack` of models, or a layer of the library",
    note = "put your own layer into a struct with `#[model]`, whose `#[forward]` declares its input and output"
)]
pub trait PipelineStage<X> {
    /// The output, which the next stage takes.
    type Output;

    /// Returns the layers of a stack; the chain can be cut between any two of them. `None` for other fields.
    #[doc(hidden)]
    fn layer_count(&self) -> Option<LayerCount> {
        None
    }

    /// Applies the first `layers` of a stack, or another field as a whole.
    #[doc(hidden)]
    fn run(&self, layers: Range<usize>, input: X) -> Self::Output;

    /// Applies `layers` of a stack to the output of the layers before them.
    ///
    /// # Panics
    /// If the field is not a stack: other fields are not cut.
    #[doc(hidden)]
    fn resume(&self, layers: Range<usize>, _: Self::Output) -> Self::Output {
        panic!("a field without layers is not cut, but layers {layers:?} of it were to be run");
    }
}

/// The number of layers of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerCount {
    /// Name of the dim that counts the layers.
    pub dim: &'static str,
    /// Number of layers.
    pub count: usize,
}

/// A value that a pipeline stage declared to take `T` accepts: a `T`.
#[diagnostic::on_unimplemented(
    message = "this pipeline stage takes `{T}`, but receives `{Self}`",
    label = "receives `{Self}`",
    note = "a stage takes the output of the stage before it; the first stage takes the input of `forward`"
)]
pub trait StageInput<T> {
    #[doc(hidden)]
    fn stage_input(self, internal: Internal) -> T;
}

#[diagnostic::do_not_recommend]
impl<T> StageInput<T> for T {
    fn stage_input(self, _: Internal) -> T {
        self
    }
}

/// Data that can cross from one pipeline stage to the next: tensors, tokens, and tuples of up to four of them.
///
/// Gradients flow through tensors; token ids have none.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot cross from one pipeline stage to the next",
    label = "the next stage may run on another rank",
    note = "tensors, tokens, and tuples of up to four of them can cross",
    note = "reduce a partial sum first, by `.all_reduce()` or by `scatter = Dim` on the row-parallel layer; complete a \
            collective in flight by `.wait()`"
)]
pub trait StageBoundary: SegmentData {}

#[diagnostic::do_not_recommend]
impl<T: SegmentData> StageBoundary for T {}

//! The trait of user-defined functions.

use crate::autograd::Arity;
use crate::layout::DimInfo;

use super::calls::{Backward, Forward};
use super::output::FunctionOutput;
use super::saved::SavedBuffers;
use super::shapes::{PerOperand, Shapes};

/// A function of inputs shaped `I` and parameters shaped `P`, with a backward of its own.
///
/// Its shapes state how it is distributed. A dim that is generic, `D: Dim`, may be whole, split or declared over an
/// axis: the function treats all elements along it alike, and never reads one to compute another. A dim along which it
/// reads is `D: Local`, whole on each rank. A dim over which it sums may be split if the output is a
/// [`Partial`](crate::tensor::Partial) over the axis.
///
/// From the shapes follows the rest, and nothing of it is declared: the axes over which gradients of parameters are
/// summed, and those over which the gradient of an input is summed, because the output varies over them and the input
/// does not.
///
/// A function holds no tensor, parameter or generator of random numbers, because forward may run again in backward
/// ([activation checkpointing](crate::nn::Recompute)), and it has gradients of its operands only; being `Send + Sync`
/// enforces it. Random numbers are drawn from [`random_key`](super::FunctionContext::random_key).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a function of inputs shaped `{I}` and parameters shaped `{P}`",
    label = "not defined for these shapes",
    note = "a dim along which the function reads is `Local` in its impl: gather a `Split<Dim, A>` first, \
            `.gather(Dim)`, and declare the dim without `@`; a dim along which it treats all elements alike is `Dim`"
)]
pub trait Function<I: Shapes, P: Shapes = ()>: Send + Sync + 'static {
    /// The output.
    type Output: FunctionOutput;
    /// Results of forward that backward reads: `()`, a [`Buffer`](meshwright_backend::Buffer), or an array of them.
    type Saved: SavedBuffers;

    /// Returns the path of the field that the function belongs to, as [`Builder::site`](crate::nn::Builder::site)
    /// returns it: for messages, random numbers, and the save policies of checkpointed segments.
    fn path(&self) -> &str;

    /// Returns the global size of a dim of the output that no operand has; `None` if there is no such dim.
    fn new_size(&self, dim: &DimInfo) -> Option<usize> {
        let _ = dim;
        None
    }

    /// Returns the settings of the function as text, which are checked again when they change:
    /// `Some(format!("{self:?}"))`. `None` if it has none; a setting that is not stated here is found by the checks of
    /// later calls, which are fewer.
    fn options(&self) -> Option<String> {
        None
    }

    /// Returns the operands that backward reads: all inputs and parameters, but not the output. Others are not saved,
    /// and parameters that backward does not read need not be unsharded for it.
    fn backward_reads(&self) -> BackwardReads<I, P> {
        BackwardReads::operands()
    }

    /// Writes the output.
    fn forward_pass(&self, call: Forward<'_, I, P>) -> Self::Saved;

    /// Writes the required gradients of inputs and parameters.
    fn backward_pass(&self, call: Backward<'_, I, P, Self::Saved>);
}

/// Operands of forward that backward reads.
pub struct BackwardReads<I: Shapes, P: Shapes> {
    /// True for each input that backward reads.
    pub inputs: PerOperand<I, bool>,
    /// True for each parameter whose values backward reads.
    pub params: PerOperand<P, bool>,
    /// True if backward reads the output.
    pub output: bool,
}

impl<I: Shapes, P: Shapes> BackwardReads<I, P> {
    /// All inputs and parameters, but not the output.
    pub fn operands() -> Self {
        let inputs = I::Count::from_fn(|_| true);
        BackwardReads { inputs, params: P::Count::from_fn(|_| true), output: false }
    }

    /// Nothing: backward needs only the gradient of the output and the buffers that forward saves.
    pub fn nothing() -> Self {
        let inputs = I::Count::from_fn(|_| false);
        BackwardReads { inputs, params: P::Count::from_fn(|_| false), output: false }
    }
}

impl<I: Shapes, P: Shapes> std::fmt::Debug for BackwardReads<I, P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackwardReads")
            .field("inputs", &self.inputs.as_ref())
            .field("params", &self.params.as_ref())
            .field("output", &self.output)
            .finish()
    }
}

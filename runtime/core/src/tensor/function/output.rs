//! Outputs of functions: tensors, or partial sums.

use crate::layout::{AxisGroup, AxisSet, Dims, Here, Seal, UsageSet};

use super::super::{FromValue, Partial, Tensor};

/// Output of a function: a [`Tensor`], or a [`Partial`] sum over an axis. A function has one output.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the output of a function",
    label = "not a tensor or a partial sum",
    note = "a function has one output, `Tensor<(Batch, Hidden)>` or `Partial<(Batch, Hidden), Tp>`; two outputs \
            need two functions"
)]
pub trait FunctionOutput: FromValue {
    /// The shape.
    type Shape: Dims;
    /// The usage of axes by the shape, and by the sum.
    #[doc(hidden)]
    type Usage: UsageSet;
    /// The axes over which the output is partial.
    const PARTIAL_OVER: AxisSet;
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<S: Dims> FunctionOutput for Tensor<S> {
    type Shape = S;
    type Usage = S::Usage;
    const PARTIAL_OVER: AxisSet = Here::AXES;
    const SEAL: Seal = Seal::new();
}

impl<S: Dims, A: AxisGroup> FunctionOutput for Partial<S, A> {
    type Shape = S;
    type Usage = <S::Usage as UsageSet>::Plus<A::Usage>;
    const PARTIAL_OVER: AxisSet = A::AXES;
    const SEAL: Seal = Seal::new();
}

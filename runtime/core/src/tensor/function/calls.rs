//! Arguments of a function's forward and backward.

use std::sync::Arc;

use crate::context::Rank;
use meshwright_backend::{Backend, Buffer, DType, Device};

use super::super::draw_key::draw_key;
use super::gradient_target::GradientTarget;
use super::operands::{OperandView, ResultView};
use super::saved::SavedBuffers;
use super::shapes::{PerOperand, Shapes};

/// Arguments of [`Function::forward_pass`](super::Function::forward_pass).
pub struct Forward<'a, I: Shapes, P: Shapes> {
    /// The inputs.
    pub inputs: PerOperand<I, OperandView<'a>>,
    /// The parameters, unsharded over the axes of FSDP.
    pub params: PerOperand<P, OperandView<'a>>,
    /// The output, to be written.
    pub output: ResultView<'a>,
    /// The rank that computes the function.
    pub context: FunctionContext<'a>,
}

/// Arguments of [`Function::backward_pass`](super::Function::backward_pass).
pub struct Backward<'a, I: Shapes, P: Shapes, S: SavedBuffers> {
    /// The inputs, if they are saved.
    pub inputs: PerOperand<I, OperandView<'a>>,
    /// The parameters, if their values are read.
    pub params: PerOperand<P, OperandView<'a>>,
    /// The output, if it is saved.
    pub output: OperandView<'a>,
    /// The gradient of the output.
    pub output_gradient: OperandView<'a>,
    /// Results that forward has saved.
    pub saved: S::Views<'a>,
    /// The gradients of the inputs, to be written.
    pub input_gradients: PerOperand<I, GradientTarget<'a>>,
    /// The gradients of the parameters in f32, to be written: this rank's contribution, before any reduction.
    pub param_gradients: PerOperand<P, GradientTarget<'a>>,
    /// The rank that computes the function.
    pub context: FunctionContext<'a>,
}

/// The rank that computes a function, as far as its kernels use it. It cannot communicate: the library issues the
/// collectives that follow from the function's shapes.
#[derive(Clone, Copy)]
pub struct FunctionContext<'a> {
    pub(super) rank: &'a Rank,
    pub(super) path: &'a str,
}

impl<'a> FunctionContext<'a> {
    /// Returns the kernels of the rank, by family, for views of operands and results.
    pub fn backend(&self) -> &'a dyn Backend {
        self.rank.backend()
    }

    /// Returns the device that holds operands and results; `None` if they are in memory of the host.
    pub fn device(&self) -> Option<&'a Arc<dyn Device>> {
        self.rank.allocator().device()
    }

    /// Returns the dtype of operands, the output and the gradients of inputs.
    pub fn compute_dtype(&self) -> DType {
        self.rank.compute_dtype()
    }

    /// Allocates `len` elements in the compute dtype.
    pub fn alloc(&self, len: usize) -> Buffer {
        self.rank.alloc_activation(len)
    }

    /// Allocates `len` elements in f32, such as statistics of rows.
    pub fn alloc_f32(&self, len: usize) -> Buffer {
        self.rank.alloc_statistics(len)
    }

    /// Returns the key of the function's random numbers: of the seed, the path and the training step, and the same when
    /// a checkpointed segment is recomputed. Draw by it and by the index in the global tensor, and a result is the same
    /// on every mesh.
    pub fn random_key(&self) -> u64 {
        draw_key(self.rank, self.path)
    }
}

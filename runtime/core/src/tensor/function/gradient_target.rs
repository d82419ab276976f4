//! Gradients that a function's backward writes, each once.

use std::cell::Cell;

use crate::autograd::Arity;
use crate::context::Rank;
use meshwright_backend::Buffer;
use meshwright_mesh::Extent;

use super::operands::{OperandName, ResultView};
use crate::promise::CallCheck;

/// The gradient of one operand, which backward writes.
#[must_use = "backward writes the gradient of each operand: `if let Some(dx) = dx.target() { .. }`"]
pub struct GradientTarget<'a> {
    result: Option<ResultView<'a>>,
    taken: &'a Cell<bool>,
}

impl<'a> GradientTarget<'a> {
    /// Returns the block to write, every element of it; `None` if the operand requires no gradient.
    pub fn target(self) -> Option<ResultView<'a>> {
        self.taken.set(true);
        self.result
    }
}

/// Buffers for the required gradients of operands, and the ones that backward has taken.
pub(super) struct GradientBuffers<C: Arity> {
    buffers: C::Array<Option<Buffer>>,
    taken: C::Array<Cell<bool>>,
}

impl<C: Arity> GradientBuffers<C> {
    /// Creates the buffers, one for each operand that requires a gradient.
    pub(super) fn new(buffer: impl FnMut(usize) -> Option<Buffer>) -> GradientBuffers<C> {
        GradientBuffers { buffers: C::from_fn(buffer), taken: C::from_fn(|_| Cell::new(false)) }
    }

    /// Iterates over the lengths of the buffers.
    pub(super) fn gradient_lens(&self) -> impl Iterator<Item = usize> {
        self.buffers.as_ref().iter().map(|buffer| buffer.as_ref().map_or(0, Buffer::len))
    }

    /// Marks all elements as unwritten, for `check`.
    pub(super) fn mark_unwritten(&mut self, check: CallCheck) {
        C::map_mut(&mut self.buffers, |buffer| {
            if let Some(buffer) = buffer {
                check.mark_unwritten(buffer);
            }
        });
    }

    /// Notes that all gradients are taken.
    pub(super) fn take_all(&self) {
        self.taken.as_ref().iter().for_each(|taken| taken.set(true));
    }

    /// Returns one target per operand.
    pub(super) fn gradient_targets<'a>(
        &'a mut self,
        rank: &'a Rank,
        extents: &'a C::Array<Vec<Extent>>,
    ) -> C::Array<GradientTarget<'a>> {
        let mut operands = extents.as_ref().iter().zip(self.taken.as_ref());
        C::map_mut(&mut self.buffers, |buffer| {
            let (extents, taken) = operands.next().expect("there is a buffer per operand");
            let view = buffer.as_mut().map(Buffer::view_mut);
            let result = view.map(|view| ResultView { view, extents, rank });
            GradientTarget { result, taken }
        })
    }

    /// Returns the gradients that backward has taken.
    pub(super) fn into_taken(self) -> Vec<Option<Buffer>> {
        let taken = self.taken.into_iter().map(Cell::into_inner);
        self.buffers.into_iter().zip(taken).map(|(data, taken)| data.filter(|_| taken)).collect()
    }

    /// Returns the required gradients.
    ///
    /// # Panics
    /// If backward has not taken one of them, or `check` finds an element that is not written.
    pub(super) fn into_written(
        self,
        operand: OperandName<'_>,
        check: CallCheck,
    ) -> C::Array<Option<Buffer>> {
        let operands = self.buffers.as_ref().iter().zip(self.taken.as_ref());
        for (index, (buffer, taken)) in operands.enumerate() {
            let Some(buffer) = buffer else { continue };
            let operand = operand.numbered(index);
            assert!(
                taken.get(),
                "backward has not written the gradient of {operand}: take it by `.target()`, and write every element"
            );
            check.check_written(buffer, format_args!("the gradient of {operand}"));
        }
        self.buffers
    }
}

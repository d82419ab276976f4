//! Bytes of operands, and dims of kernels.

use crate::ops::LeafGrad;
use crate::{View, ViewMut};

/// An operand, or several.
pub(super) trait OperandBytes {
    fn moved(&self) -> u64;
}

impl OperandBytes for View<'_> {
    fn moved(&self) -> u64 {
        self.byte_len() as u64
    }
}

impl OperandBytes for ViewMut<'_> {
    fn moved(&self) -> u64 {
        self.byte_len() as u64
    }
}

impl<T: OperandBytes> OperandBytes for Option<T> {
    fn moved(&self) -> u64 {
        self.as_ref().map_or(0, T::moved)
    }
}

impl<T: OperandBytes> OperandBytes for [T] {
    fn moved(&self) -> u64 {
        self.iter().map(T::moved).sum()
    }
}

/// The bytes of the gradient, which is written.
impl OperandBytes for LeafGrad<'_> {
    fn moved(&self) -> u64 {
        self.view.moved()
    }
}

/// Returns the bytes of several operands.
pub(super) fn bytes_of(operands: &[&dyn OperandBytes]) -> u64 {
    operands.iter().map(|operand| operand.moved()).sum()
}

/// Returns the bytes of a gradient that has to be read, because it accumulates.
pub(super) fn accumulated(gradient: Option<&LeafGrad<'_>>) -> u64 {
    gradient.filter(|gradient| gradient.accumulate).map_or(0, |gradient| gradient.moved())
}

/// Returns a dim of a kernel, at most the largest number that it can have.
pub(super) fn dim(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

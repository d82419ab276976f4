//! Bytes of operands.

use crate::ops::LeafGrad;
use crate::{View, ViewMut};

/// An operand, or several.
pub(super) trait OperandBytes {
    fn bytes(&self) -> u64;
}

impl OperandBytes for View<'_> {
    fn bytes(&self) -> u64 {
        self.byte_len() as u64
    }
}

impl OperandBytes for ViewMut<'_> {
    fn bytes(&self) -> u64 {
        self.byte_len() as u64
    }
}

impl<T: OperandBytes> OperandBytes for Option<T> {
    fn bytes(&self) -> u64 {
        self.as_ref().map_or(0, T::bytes)
    }
}

impl<T: OperandBytes> OperandBytes for [T] {
    fn bytes(&self) -> u64 {
        self.iter().map(T::bytes).sum()
    }
}

/// The bytes of the gradient, which is written.
impl OperandBytes for LeafGrad<'_> {
    fn bytes(&self) -> u64 {
        self.view.bytes()
    }
}

/// Returns the bytes of several operands.
pub(super) fn bytes_of(operands: &[&dyn OperandBytes]) -> u64 {
    operands.iter().map(|operand| operand.bytes()).sum()
}

/// Returns the bytes of a gradient that has to be read, because it accumulates.
pub(super) fn accumulated(gradient: Option<&LeafGrad<'_>>) -> u64 {
    gradient.filter(|gradient| gradient.accumulate).map_or(0, |gradient| gradient.bytes())
}

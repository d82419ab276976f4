//! Tensors and token ids as inputs and outputs of checkpointed segments and pipeline stages.

use crate::autograd::{Part, PartKind, SegmentData};
use crate::layout::{Dims, Internal};

use super::{Tensor, Tokens};

#[diagnostic::do_not_recommend]
impl<S: Dims> SegmentData for Tensor<S> {
    fn kinds(kinds: &mut Vec<PartKind>, _: Internal) {
        kinds.push(PartKind::Activation(S::DIMS));
    }

    fn parts(&self, parts: &mut Vec<Part>, _: Internal) {
        parts.push(Part::Activation(self.value().clone()));
    }

    fn from_parts(next: &mut dyn FnMut() -> Part, _: Internal) -> Tensor<S> {
        match next() {
            Part::Activation(value) => Tensor::wrap(value),
            Part::TokenIds(_) => unreachable!("the part of a tensor is an activation"),
        }
    }
}

#[diagnostic::do_not_recommend]
impl<S: Dims> SegmentData for Tokens<S> {
    fn kinds(kinds: &mut Vec<PartKind>, _: Internal) {
        kinds.push(PartKind::TokenIds(S::DIMS));
    }

    fn parts(&self, parts: &mut Vec<Part>, _: Internal) {
        parts.push(Part::TokenIds(self.untyped().clone()));
    }

    fn from_parts(next: &mut dyn FnMut() -> Part, _: Internal) -> Tokens<S> {
        match next() {
            Part::TokenIds(ids) => Tokens::of_untyped(ids),
            Part::Activation(_) => unreachable!("the part of tokens is token ids"),
        }
    }
}

//! Tensors and token ids as inputs and outputs of checkpointed segments.

use crate::autograd::{SegmentData, Value};
use crate::layout::{Dims, Internal};

use super::{Tensor, Tokens};

#[diagnostic::do_not_recommend]
impl<S: Dims> SegmentData for Tensor<S> {
    type Frame = ();

    fn take_apart(&self, values: &mut Vec<Value>, _: Internal) {
        values.push(self.value().clone());
    }

    fn put_together((): &(), values: &mut dyn FnMut() -> Value, _: Internal) -> Tensor<S> {
        Tensor::wrap(values())
    }
}

/// Token ids have no gradient, and are small: they are saved as they are.
#[diagnostic::do_not_recommend]
impl<S: Dims> SegmentData for Tokens<S> {
    type Frame = Tokens<S>;

    fn take_apart(&self, _: &mut Vec<Value>, _: Internal) -> Tokens<S> {
        self.clone()
    }

    fn put_together(frame: &Tokens<S>, _: &mut dyn FnMut() -> Value, _: Internal) -> Tokens<S> {
        frame.clone()
    }
}

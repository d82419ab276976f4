//! Inputs and outputs of checkpointed segments, separated into values and the frame around them.

use crate::layout::Internal;

use super::super::value::Value;

/// Input or output of a checkpointed segment: tensors, tokens, and tuples of them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot enter or leave a recomputed segment",
    label = "not a tensor, tokens, or a tuple of them",
    note = "tensors, tokens and tuples of up to four of them can; compute anything else inside of the segment, or outside"
)]
pub trait SegmentData: Clone + 'static {
    /// Rest of the data without the values.
    #[doc(hidden)]
    type Frame: 'static;
    #[doc(hidden)]
    fn take_apart(&self, values: &mut Vec<Value>, internal: Internal) -> Self::Frame;
    #[doc(hidden)]
    fn put_together(
        frame: &Self::Frame,
        values: &mut dyn FnMut() -> Value,
        internal: Internal,
    ) -> Self;
}

#[diagnostic::do_not_recommend]
impl SegmentData for () {
    type Frame = ();

    fn take_apart(&self, _: &mut Vec<Value>, _: Internal) {}

    fn put_together((): &(), _: &mut dyn FnMut() -> Value, _: Internal) {}
}

macro_rules! tuples {
    ($(($($item:ident),+))*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($item: SegmentData),+> SegmentData for ($($item,)+) {
            type Frame = ($($item::Frame,)+);

            #[allow(non_snake_case, reason = "the items are named as their types")]
            fn take_apart(&self, values: &mut Vec<Value>, internal: Internal) -> Self::Frame {
                let ($($item,)+) = self;
                ($($item.take_apart(values, internal),)+)
            }

            #[allow(non_snake_case, reason = "the items are named as their types")]
            fn put_together(
                frame: &Self::Frame,
                values: &mut dyn FnMut() -> Value,
                internal: Internal,
            ) -> Self {
                let ($($item,)+) = frame;
                ($($item::put_together($item, values, internal),)+)
            }
        }
    )*};
}

tuples! { (A) (A, B) (A, B, C) (A, B, C, D) }

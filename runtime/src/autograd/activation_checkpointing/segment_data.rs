//! What can enter or leave a region, taken apart into its numbers and the frame around them.

use crate::layout::{Dims, Internal};

use crate::tensor::{Tensor, Tokens};

use super::super::value::Value;

/// What can enter or leave a region: tensors, tokens, and tuples of them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot enter or leave a recomputed region",
    label = "not a tensor, tokens, or a tuple of them",
    note = "tensors, tokens and tuples of up to four of them can; compute anything else inside of the region, or outside"
)]
pub trait RegionData: Clone + 'static {
    /// What is left when the numbers are taken out.
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
impl<S: Dims> RegionData for Tensor<S> {
    type Frame = ();

    fn take_apart(&self, values: &mut Vec<Value>, _: Internal) {
        values.push(self.value().clone());
    }

    fn put_together((): &(), values: &mut dyn FnMut() -> Value, _: Internal) -> Tensor<S> {
        Tensor::wrap(values())
    }
}

/// Token ids have no gradient, and are small: they are kept as they are.
#[diagnostic::do_not_recommend]
impl<S: Dims> RegionData for Tokens<S> {
    type Frame = Tokens<S>;

    fn take_apart(&self, _: &mut Vec<Value>, _: Internal) -> Tokens<S> {
        self.clone()
    }

    fn put_together(frame: &Tokens<S>, _: &mut dyn FnMut() -> Value, _: Internal) -> Tokens<S> {
        frame.clone()
    }
}

#[diagnostic::do_not_recommend]
impl RegionData for () {
    type Frame = ();

    fn take_apart(&self, _: &mut Vec<Value>, _: Internal) {}

    fn put_together((): &(), _: &mut dyn FnMut() -> Value, _: Internal) {}
}

macro_rules! tuples {
    ($(($($item:ident),+))*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($item: RegionData),+> RegionData for ($($item,)+) {
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

//! Masks and weights with the dims of a tensor, or some of them.

use crate::layout::{Dims, Seal};

/// The shape of a tensor shaped `S` with a mask, or with weights: `S`, since they have its dims or some of them.
#[diagnostic::on_unimplemented(
    message = "a tensor shaped `{S}` cannot take a mask or weights that have more dims: the result would be `{Self}`",
    label = "has dims that the tensor does not have",
    note = "a mask and weights have the dims of the tensor, or some of them: make them of fewer dims, or expand the \
            tensor"
)]
pub trait Covers<S>: Dims {
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<S: Dims> Covers<S> for S {
    const SEAL: Seal = Seal::new();
}

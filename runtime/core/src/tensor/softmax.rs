//! Softmax over the last dim.

use crate::layout::{Dim, Dims, Local};

use super::Tensor;
use super::along_dim::softmax_of_rows;

/// A shape whose last dim is whole on every rank.
#[diagnostic::on_unimplemented(
    message = "a softmax cannot run over the last dim of `{Self}`",
    label = "its last dim is split or distributed",
    note = "a softmax reads the whole dim: `.gather(Dim)` a `Split<Dim, A>` first, and declare the dim without `@`; \
            for a loss over a split vocabulary use `CrossEntropy` with `#[sharded(tp = \"vocab\")]`"
)]
pub trait LastLocal: Dims {}

macro_rules! last_local {
    ($(($($before:ident),*))*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* Last: Local> LastLocal for ($($before,)* Last,) {}
    )*};
}

last_local! { () (A) (A, B) (A, B, C) (A, B, C, D) }

impl<S: Dims> Tensor<S> {
    /// Returns `exp(x) / sum(exp(x))` over the last dim.
    #[track_caller]
    pub fn softmax(&self) -> Tensor<S>
    where
        S: LastLocal,
    {
        let cols = self.local_extents()[S::DIMS.len() - 1].local;
        Tensor::from_untyped(softmax_of_rows(self.value(), cols))
    }
}

//! Softmax over the last dim.

use std::sync::Arc;

use crate::autograd::Value;
use crate::layout::{Dim, Dims, Local};

use super::Tensor;

/// A shape whose last dim is whole on every rank.
#[diagnostic::on_unimplemented(
    message = "a softmax cannot run over the last dim of `{Self}`",
    label = "its last dim is split or distributed",
    note = "a softmax reads the whole dim: `.gather(Dim)` it first; for a loss over a split vocabulary use `CrossEntropy` with `#[sharded(tp = \"vocab\")]`"
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
        let rank = self.rank();
        let cols = self.local_extents()[S::DIMS.len() - 1].local;
        let ready = self.value().compute();
        let mut out = rank.alloc(ready.data.len());
        rank.backend().softmax(cols, ready.data.view(), out.view_mut());
        let out = Arc::new(out);
        let node = ready.node.map(|source| {
            let out = Arc::clone(&out);
            rank.tape().record(move |gradients, dy| {
                let mut dx = gradients.rank.alloc(out.len());
                gradients.rank.backend().softmax_backward(
                    cols,
                    out.view(),
                    dy.view(),
                    dx.view_mut(),
                );
                gradients.add(&source, Arc::new(dx));
            })
        });
        Tensor::wrap(Value::alias(rank, self.local_extents().to_vec(), out, node))
    }
}

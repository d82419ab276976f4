//! Softmax over the last dim.

use std::sync::Arc;

use crate::layout::{Dim, Dims, Local};
use meshwright_backend::Buffer;

use super::{
    AlwaysRecomputed, Count, InBackward, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, Tensor, apply,
};

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
        Tensor::from_untyped(apply(
            SoftmaxOperation { cols },
            Operands {
                rank: self.rank(),
                path: "",
                inputs: [OperationInput::new(self.value(), InBackward::Ignores)],
                params: [],
                extents: self.local_extents().to_vec(),
            },
        ))
    }
}

/// Softmax over rows of `cols` elements; its backward reads the output only.
struct SoftmaxOperation {
    cols: usize,
}

impl Operation<Count<1>, Count<0>> for SoftmaxOperation {
    type Saved = AlwaysRecomputed<()>;

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<0>>) -> (Buffer, ()) {
        let OperationForward { rank, inputs: [x], .. } = forward;
        let x = x.compute().data;
        let mut out = rank.alloc_activation(x.len());
        rank.backend().softmax(self.cols, x.view(), out.view_mut());
        (out, ())
    }

    fn saves_output(&self) -> bool {
        true
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<0>>,
        _: AlwaysRecomputed<()>,
    ) {
        let OperationBackward { gradients, inputs: [x], output, gradient: dy, .. } = backward;
        let out = output.expect("the output is saved");
        let mut dx = gradients.rank.alloc_activation(out.len());
        let backend = gradients.rank.backend();
        backend.softmax_backward(self.cols, out.view(), dy.view(), dx.view_mut());
        x.add_gradient(gradients, Arc::new(dx));
    }
}

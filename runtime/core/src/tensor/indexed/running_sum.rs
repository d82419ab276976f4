//! Running sums along a dim.

use std::sync::Arc;

use crate::context::alloc_like;
use crate::layout::{Dims, Reads, refuse_routed};
use crate::tensor::{
    AlwaysRecomputed, Count, InBackward, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, Tensor, apply,
};
use meshwright_backend::{Buffer, MiddleDim};
use meshwright_mesh::__internal::local_len;

impl<S: Dims> Tensor<S> {
    /// Returns the sums of all elements up to each one, along a dim that each rank holds whole. Sums are in f32.
    ///
    /// Shape: `S -> S`.
    #[track_caller]
    pub fn cumsum<D, P>(&self, dim: D) -> Tensor<S>
    where
        D: Reads<S, P>,
    {
        let _: D = dim;
        const { refuse_routed::<S>() }
        let x = self.value();
        let (before, rest) = x.extents().split_at(D::DIM);
        let dim = MiddleDim {
            outer: local_len(before),
            len: rest[0].local,
            inner: local_len(&rest[1..]),
        };
        let inputs = [OperationInput::new(x, InBackward::Ignores)];
        let extents = x.extents().to_vec();
        let operands = Operands { rank: x.rank(), path: "", inputs, params: [], extents };
        Tensor::from_untyped(apply(RunningSum { dim }, operands))
    }
}

/// Sums up to each element; its backward sums from each element on.
struct RunningSum {
    dim: MiddleDim,
}

impl Operation<Count<1>, Count<0>> for RunningSum {
    type Saved = AlwaysRecomputed<()>;

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<0>>) -> (Buffer, ()) {
        let OperationForward { rank, inputs: [x], .. } = forward;
        let x = x.compute().data;
        let mut y = alloc_like(&x, x.len());
        rank.backend().running_sum(self.dim, false, x.view(), y.view_mut());
        (y, ())
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<0>>,
        _: AlwaysRecomputed<()>,
    ) {
        let OperationBackward { gradients, inputs: [x], gradient: dy, .. } = backward;
        let mut dx = alloc_like(&dy, dy.len());
        gradients.rank.backend().running_sum(self.dim, true, dy.view(), dx.view_mut());
        x.add_gradient(gradients, Arc::new(dx));
    }
}

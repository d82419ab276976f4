//! The kernels that take elements by their index, and add them up by it: each is the backward of the other.

use std::sync::Arc;

use crate::context::{Rank, alloc_like};
use crate::tensor::{AlwaysRecomputed, Count, Operation, OperationBackward, OperationForward};
use meshwright_backend::{Buffer, Category, DType, IndexedDim, StridedCopy};

use super::in_order;

/// Direction between elements by their index and elements in the order of indices.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// Elements are taken by their index.
    Take,
    /// Elements are added up by their index.
    Add,
}

/// Elements taken or added up along a dim, from an input in the order of kernels.
pub(super) struct IndexOperation {
    pub(super) direction: Direction,
    pub(super) shape: IndexedDim,
    pub(super) indices: Arc<Buffer>,
    /// The copy of the input to the order of kernels, if it has another one.
    pub(super) ordered: Option<StridedCopy>,
}

impl IndexOperation {
    fn compute(&self, rank: &Rank, direction: Direction, x: &Buffer) -> Buffer {
        let IndexedDim { outer, len, inner, count, .. } = self.shape;
        let (backend, indices) = (rank.backend(), self.indices.view());
        if direction == Direction::Take {
            let mut out = alloc_like(x, outer * count * inner);
            backend.take_elements(&self.shape, indices, x.view(), out.view_mut());
            return out;
        }
        let size = outer * len * inner;
        let mut sums = x.allocator().alloc(DType::F32, size, Category::Activations);
        backend.fill(sums.view_mut(), 0.0);
        backend.add_elements(&self.shape, indices, x.view(), sums.view_mut());
        if x.dtype() == DType::F32 {
            return sums;
        }
        let mut out = alloc_like(x, size);
        backend.cast(sums.view(), out.view_mut());
        out
    }
}

impl Operation<Count<1>, Count<0>> for IndexOperation {
    type Saved = AlwaysRecomputed<()>;

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<0>>) -> (Buffer, ()) {
        let OperationForward { rank, inputs: [x], .. } = forward;
        let x = in_order(rank, self.ordered.as_ref(), &x.compute().data);
        (self.compute(rank, self.direction, &x), ())
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<0>>,
        _: AlwaysRecomputed<()>,
    ) {
        let OperationBackward { gradients, inputs: [x], gradient: dy, .. } = backward;
        let opposite = match self.direction {
            Direction::Take => Direction::Add,
            Direction::Add => Direction::Take,
        };
        let dx = Arc::new(self.compute(gradients.rank, opposite, &dy));
        let back = self.ordered.as_ref().map(StridedCopy::reversed);
        let dx = in_order(gradients.rank, back.as_ref(), &dx);
        x.add_gradient(gradients, dx);
    }
}

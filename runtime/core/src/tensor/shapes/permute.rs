//! Dims in another order.

use std::sync::Arc;

use crate::autograd::Value;
use crate::context::{Rank, alloc_like};
use crate::layout::{Dims, PermuteDims, refuse_routed};
use crate::tensor::{
    AlwaysRecomputed, Count, InBackward, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, Tensor, apply,
};
use meshwright_backend::{Buffer, CopyDim, StridedCopy};
use meshwright_mesh::Extent;

use super::position_of;

impl<S: Dims> Tensor<S> {
    /// Puts the dims in another order, all of them named unsplit: `x.permute((Batch, Heads, Seq, HeadDim))`. Splits
    /// stay.
    ///
    /// Shape: `[A, B, C] -> [B, C, A]`.
    #[track_caller]
    pub fn permute<N, P>(&self, order: N) -> Tensor<N::Out>
    where
        N: PermuteDims<S, P>,
    {
        let _: N = order;
        const { refuse_routed::<S>() }
        let positions = <N::Out as Dims>::DIMS.iter().map(|dim| position_of(dim, S::DIMS));
        let positions: Option<Vec<usize>> = positions.collect();
        let positions = positions.expect("another order has the same dims");
        if positions.is_sorted() {
            return Tensor::from_untyped(self.value().unchanged());
        }
        Tensor::from_untyped(permuted(self.value(), &positions))
    }
}

/// Returns `x` with its dims at these positions, in this order.
#[track_caller]
fn permuted(x: &Value, positions: &[usize]) -> Value {
    let extents: Vec<Extent> = positions.iter().map(|dim| x.extents()[*dim]).collect();
    let strides = strides(x.extents());
    let places = self::strides(&extents);
    let dims = positions.iter().zip(&extents).zip(&places);
    let copy = StridedCopy::new(dims.map(|((dim, extent), place)| CopyDim {
        size: extent.local,
        src: strides[*dim],
        dst: *place,
    }));
    let inputs = [OperationInput::new(x, InBackward::Ignores)];
    let operands = Operands { rank: x.rank(), path: "", inputs, params: [], extents };
    apply(PermuteOperation { copy, len: x.len() }, operands)
}

/// Returns the distance of neighbors along each dim of a block, row-major.
pub(in crate::tensor) fn strides(extents: &[Extent]) -> Vec<usize> {
    let mut strides = vec![1; extents.len()];
    for dim in (1..extents.len()).rev() {
        strides[dim - 1] = strides[dim] * extents[dim].local;
    }
    strides
}

/// Copies all elements of `src` to other places.
pub(in crate::tensor) fn copied(
    rank: &Rank,
    copy: &StridedCopy,
    src: &Buffer,
    len: usize,
) -> Buffer {
    let mut out = alloc_like(src, len);
    rank.backend().copy_strided(copy, src.view(), out.view_mut());
    out
}

/// A copy to another order of dims; its backward is the copy in the other direction.
struct PermuteOperation {
    copy: StridedCopy,
    len: usize,
}

impl Operation<Count<1>, Count<0>> for PermuteOperation {
    type Saved = AlwaysRecomputed<()>;

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<0>>) -> (Buffer, ()) {
        let OperationForward { rank, inputs: [x], .. } = forward;
        (copied(rank, &self.copy, &x.compute().data, self.len), ())
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<0>>,
        _: AlwaysRecomputed<()>,
    ) {
        let OperationBackward { gradients, inputs: [x], gradient: dy, .. } = backward;
        let dx = copied(gradients.rank, &self.copy.reversed(), &dy, self.len);
        x.add_gradient(gradients, Arc::new(dx));
    }
}

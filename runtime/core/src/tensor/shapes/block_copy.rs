//! Copies of a block of one tensor to a block of another, with zeros around it.

use std::sync::Arc;

use crate::autograd::Value;
use crate::context::{Rank, alloc_like};
use crate::tensor::{
    AlwaysRecomputed, Count, InBackward, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, apply,
};
use meshwright_backend::{BlockCopy, Buffer};
use meshwright_mesh::__internal::local_len;
use meshwright_mesh::Extent;

/// Elements along one dim that are copied: `len` of them, from element `from` of the source to element `to` of the
/// destination.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) len: usize,
}

/// Returns a tensor with these extents that has the elements `run` along a dim of `x`, and zeros elsewhere. The other
/// dims are those of `x`, before and after the one at position `dim`; the result has `size` elements along it.
#[track_caller]
pub(super) fn copy_run(
    x: &Value,
    dim: usize,
    run: Run,
    size: usize,
    extents: Vec<Extent>,
) -> Value {
    let copy = run_of(x.extents(), dim, run, size);
    let operation = BlockOperation { copy, input_len: x.len(), output_len: local_len(&extents) };
    let inputs = [OperationInput::new(x, InBackward::Ignores)];
    apply(operation, Operands { rank: x.rank(), path: "", inputs, params: [], extents })
}

/// Returns the copy of the elements `run` along dim `dim` of a tensor, to a dim of `size` elements.
pub(super) fn run_of(extents: &[Extent], dim: usize, run: Run, size: usize) -> BlockCopy {
    let inner = local_len(&extents[dim + 1..]);
    BlockCopy {
        blocks: local_len(&extents[..dim]),
        len: run.len * inner,
        src_start: run.from * inner,
        src_stride: extents[dim].local * inner,
        dst_start: run.to * inner,
        dst_stride: size * inner,
    }
}

/// Copies `src` to a buffer of `len` elements, and fills the others with zero.
pub(super) fn copy_block(rank: &Rank, copy: &BlockCopy, src: &Buffer, len: usize) -> Buffer {
    let mut out = alloc_like(src, len);
    if copy.blocks * copy.len < len {
        rank.backend().fill(out.view_mut(), 0.0);
    }
    rank.backend().copy_blocks(copy, src.view(), out.view_mut());
    out
}

/// A copy of a block; its backward is the copy in the other direction.
struct BlockOperation {
    copy: BlockCopy,
    input_len: usize,
    output_len: usize,
}

impl Operation<Count<1>, Count<0>> for BlockOperation {
    type Saved = AlwaysRecomputed<()>;

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<0>>) -> (Buffer, ()) {
        let OperationForward { rank, inputs: [x], .. } = forward;
        (copy_block(rank, &self.copy, &x.compute().data, self.output_len), ())
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<0>>,
        _: AlwaysRecomputed<()>,
    ) {
        let OperationBackward { gradients, inputs: [x], gradient: dy, .. } = backward;
        let dx = copy_block(gradients.rank, &self.copy.reversed(), &dy, self.input_len);
        x.add_gradient(gradients, Arc::new(dx));
    }
}

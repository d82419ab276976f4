//! Two tensors one behind the other along a dim.

use std::sync::Arc;

use crate::context::alloc_like;
use crate::layout::{ConcatDim, Dims, Local, Reads, RenameDim, refuse_repeated, refuse_routed};
use crate::tensor::{
    AlwaysRecomputed, Count, InBackward, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, Tensor, apply,
};
use meshwright_backend::{BlockCopy, Buffer};
use meshwright_mesh::__internal::{check_sizes, local_len};
use meshwright_mesh::Extent;

use super::block_copy::{Run, copy_block, run_of};

impl<S: Dims> Tensor<S> {
    /// Returns the elements of this tensor along `of.0` and behind them those of `other` along `of.1`, as dim `to`.
    /// Each rank holds both dims whole.
    ///
    /// Shape: `[.., D, ..], [.., E, ..] -> [.., F, ..]`.
    ///
    /// # Panics
    /// If another dim has another size in `other`.
    #[track_caller]
    pub fn concat<T: Dims, D, E, F: Local, P>(
        &self,
        other: &Tensor<T>,
        of: (D, E),
        to: F,
    ) -> Tensor<<D as RenameDim<S, F, P>>::Out>
    where
        D: Reads<S, P> + RenameDim<S, F, P>,
        E: ConcatDim<T, <D as Reads<S, P>>::Left, P>,
    {
        let (_, _): ((D, E), F) = (of, to);
        const {
            refuse_routed::<S>();
            refuse_repeated::<<D as RenameDim<S, F, P>>::Out>();
        }
        let dim = <D as Reads<S, P>>::DIM;
        let (mut extents, mut others) =
            (self.local_extents().to_vec(), other.local_extents().to_vec());
        let lens = [extents.remove(dim).local, others.remove(dim).local];
        let left = <<D as Reads<S, P>>::Left as Dims>::DIMS;
        check_sizes(left, ("one tensor", &extents), ("the one behind it", &others));
        let size = lens[0] + lens[1];
        extents.insert(dim, Extent::whole(size));
        let inputs = [self.value(), other.value()];
        let copies = [0, 1].map(|input| {
            let run = Run { from: 0, to: if input == 0 { 0 } else { lens[0] }, len: lens[input] };
            run_of(inputs[input].extents(), dim, run, size)
        });
        let operation = ConcatOperation {
            copies,
            input_lens: inputs.map(|input| input.len()),
            output_len: local_len(&extents),
        };
        let inputs = inputs.map(|input| OperationInput::new(input, InBackward::Ignores));
        let operands = Operands { rank: self.rank(), path: "", inputs, params: [], extents };
        Tensor::from_untyped(apply(operation, operands))
    }
}

/// Copies two tensors into one; its backward copies each part of the gradient.
struct ConcatOperation {
    copies: [BlockCopy; 2],
    input_lens: [usize; 2],
    output_len: usize,
}

impl Operation<Count<2>, Count<0>> for ConcatOperation {
    type Saved = AlwaysRecomputed<()>;

    fn forward(&self, forward: OperationForward<'_, Count<2>, Count<0>>) -> (Buffer, ()) {
        let OperationForward { rank, inputs, .. } = forward;
        let inputs = inputs.map(|input| input.compute().data);
        let mut out = alloc_like(&inputs[0], self.output_len);
        for (copy, input) in self.copies.iter().zip(&inputs) {
            rank.backend().copy_blocks(copy, input.view(), out.view_mut());
        }
        (out, ())
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<2>, Count<0>>,
        _: AlwaysRecomputed<()>,
    ) {
        let OperationBackward { gradients, inputs, gradient: dy, .. } = backward;
        for ((input, copy), len) in inputs.iter().zip(self.copies).zip(self.input_lens) {
            if input.requires_grad() {
                let dx = copy_block(gradients.rank, &copy.reversed(), &dy, len);
                input.add_gradient(gradients, Arc::new(dx));
            }
        }
    }
}

//! The kernels of a product and of its backward.

use std::sync::Arc;

use crate::context::Rank;
use crate::tensor::shapes::copied;
use crate::tensor::{AlwaysRecomputed, Count, Operation, OperationBackward, OperationForward};
use meshwright_backend::Buffer;

use super::plan::{Loop, Plan};

/// A product `c[b, m, n] = sum over k of a[b, m, k] * b[b, n, k]`, each index standing for any number of dims.
pub(super) struct DotOperation {
    /// All dims, with their strides in both operands and the result.
    pub(super) loops: Vec<Loop>,
    /// Elements of both operands and the result.
    pub(super) lens: [usize; 3],
}

impl DotOperation {
    /// Computes operand `roles[2]`, of both operands and the result, from the two others, `roles[0]` and `roles[1]`.
    fn compute(&self, rank: &Rank, roles: [usize; 3], operands: [&Buffer; 2]) -> Buffer {
        let plan = Plan::new(self.loops.iter().map(|each| each.with_roles(roles)));
        let backend = rank.backend();
        let mut out = rank.alloc_activation(self.lens[roles[2]]);
        let Some(product) = &plan.product else {
            backend.fill(out.view_mut(), 0.0);
            return out;
        };
        let copy_of = |operand: usize| {
            let copy = plan.copies[operand].as_ref()?;
            Some(copied(rank, copy, operands[operand], copy.elements()))
        };
        let copies = [copy_of(0), copy_of(1)];
        let [mut a, mut b] =
            [0, 1].map(|operand| copies[operand].as_ref().unwrap_or(operands[operand]).view());
        if plan.is_transposed {
            std::mem::swap(&mut a, &mut b);
        }
        let Some(copy) = &plan.copies[2] else {
            backend.batched_gemm(product, a, b, out.view_mut());
            return out;
        };
        let mut result = rank.alloc_activation(copy.elements());
        backend.batched_gemm(product, a, b, result.view_mut());
        backend.copy_strided(copy, result.view(), out.view_mut());
        out
    }
}

impl Operation<Count<2>, Count<0>> for DotOperation {
    type Saved = AlwaysRecomputed<()>;

    fn forward(&self, forward: OperationForward<'_, Count<2>, Count<0>>) -> (Buffer, ()) {
        let OperationForward { rank, inputs, .. } = forward;
        let [x, y] = inputs.map(|input| input.compute().data);
        (self.compute(rank, [0, 1, 2], [&x, &y]), ())
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<2>, Count<0>>,
        _: AlwaysRecomputed<()>,
    ) {
        let OperationBackward { gradients, inputs: [mut x, mut y], gradient: dz, .. } = backward;
        let rank = gradients.rank;
        let [x_data, y_data] = [&mut x, &mut y].map(|input| input.take_saved(rank));
        if x.requires_grad() {
            let dx = self.compute(rank, [2, 1, 0], [&dz, &y_data]);
            x.add_gradient(gradients, Arc::new(dx));
        }
        drop(y_data);
        if y.requires_grad() {
            let dy = self.compute(rank, [2, 0, 1], [&dz, &x_data]);
            y.add_gradient(gradients, Arc::new(dy));
        }
    }
}

//! Tensors repeated along a further dim.

use std::sync::Arc;

use crate::autograd::Value;
use crate::context::{alloc_like, scope};
use crate::layout::{Dims, ExpandDim, FollowedBy, Local, Shape, refuse_repeated, refuse_routed};
use crate::tensor::{
    AlwaysRecomputed, Count, InBackward, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, Tensor, apply, enter_regions,
};
use meshwright_backend::{Buffer, MiddleDim};
use meshwright_comm::Site;
use meshwright_mesh::__internal::local_len;
use meshwright_mesh::Extent;

use super::note_count;

impl<S: Dims> Tensor<S> {
    /// Repeats the tensor `size` times along a new last dim. The gradient is summed over it.
    ///
    /// Shape: `[..] -> [.., D]`.
    #[track_caller]
    pub fn expand<D: Local>(&self, dim: D, size: usize) -> Tensor<S::Out>
    where
        S: FollowedBy<(D,)>,
    {
        let _: D = dim;
        const {
            refuse_routed::<S>();
            refuse_repeated::<S::Out>();
        }
        note_count::<S>(self.rank(), S::VARIES, "the number of repetitions", size);
        let extents = self.local_extents();
        Tensor::from_untyped(expand(self.value(), extents.len(), Extent::whole(size)))
    }

    /// Repeats the tensor along a dim that `other` has: at the position and in the state that it has there, or last if
    /// this tensor has fewer dims. The gradient is summed over the dim, on all ranks that share it.
    ///
    /// Shape: `[..], [.., D, ..] -> [.., D, ..]`.
    #[track_caller]
    pub fn expand_as<T: Dims, D, P>(&self, dim: D, other: &Tensor<T>) -> Tensor<D::Out>
    where
        D: ExpandDim<S, T, P>,
        D::Out: Shape,
    {
        let _: D = dim;
        const {
            refuse_routed::<S>();
            refuse_routed::<T>();
            refuse_repeated::<D::Out>();
        }
        self.rank().check_same(other.rank());
        let site = Site::here(scope::current_or("Tensor::expand_as"));
        let [from, to] = D::DIMS;
        let x = enter_regions(self.value(), D::ENTERS, &site);
        Tensor::from_untyped(expand(&x, to, other.local_extents()[from]))
    }
}

/// Repeats `x` along a new dim at position `dim`.
#[track_caller]
fn expand(x: &Value, dim: usize, added: Extent) -> Value {
    let (before, after) = x.extents().split_at(dim);
    let repeated =
        MiddleDim { outer: local_len(before), len: added.local, inner: local_len(after) };
    let extents = [before, &[added], after].concat();
    let inputs = [OperationInput::new(x, InBackward::Ignores)];
    let operands = Operands { rank: x.rank(), path: "", inputs, params: [], extents };
    apply(ExpandOperation { dim: repeated }, operands)
}

/// Repetition along a dim; its backward is the sum over it.
struct ExpandOperation {
    dim: MiddleDim,
}

impl Operation<Count<1>, Count<0>> for ExpandOperation {
    type Saved = AlwaysRecomputed<()>;

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<0>>) -> (Buffer, ()) {
        let OperationForward { rank, inputs: [x], .. } = forward;
        let x = x.compute().data;
        let MiddleDim { outer, len, inner } = self.dim;
        let mut out = alloc_like(&x, outer * len * inner);
        rank.backend().broadcast_dim(self.dim, x.view(), out.view_mut(), 1.0);
        (out, ())
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<0>>,
        _: AlwaysRecomputed<()>,
    ) {
        let OperationBackward { gradients, inputs: [x], gradient: dy, .. } = backward;
        let mut dx = alloc_like(&dy, self.dim.outer * self.dim.inner);
        gradients.rank.backend().sum_dim(self.dim, dy.view(), dx.view_mut(), 1.0);
        x.add_gradient(gradients, Arc::new(dx));
    }
}

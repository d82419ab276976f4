//! The largest and the smallest element along a dim.

use std::sync::Arc;

use crate::autograd::Value;
use meshwright_backend::ops::middle_dim::{FindInDimArgs, PlaceInDimArgs};
use meshwright_backend::{Buffer, DimReduction, ReduceOp};

use super::super::{
    AlwaysRecomputed, Count, InBackward, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, apply,
};
use super::{AlongDim, Reduced, as_activation};

/// Elements of a dim whose indices are exact in f32.
const MOST_ELEMENTS: usize = 1 << 24;

/// Returns the largest or smallest element along a dim.
#[track_caller]
pub(super) fn extreme(x: &Value, along: AlongDim, reduction: DimReduction) -> Value {
    assert!(
        along.extent.global <= MOST_ELEMENTS,
        "`{}`: a maximum or minimum over {} elements: at most {MOST_ELEMENTS} are supported",
        along.site,
        along.extent.global
    );
    let extents = along.extents_left(x);
    let inputs = [OperationInput::new(x, InBackward::Ignores)];
    apply(
        ExtremeOperation { along, reduction },
        Operands { rank: x.rank(), path: "", inputs, params: [], extents },
    )
}

/// A maximum or minimum; its backward reads where it is.
struct ExtremeOperation {
    along: AlongDim,
    reduction: DimReduction,
}

impl Operation<Count<1>, Count<0>> for ExtremeOperation {
    /// Minus the global index of the first element that is the result, of each column, if forward is recorded.
    type Saved = AlwaysRecomputed<Option<Buffer>>;

    fn forward(
        &self,
        forward: OperationForward<'_, Count<1>, Count<0>>,
    ) -> (Buffer, Option<Buffer>) {
        let OperationForward { rank, inputs: [x], recorded, .. } = forward;
        let (x, along) = (x.compute().data, &self.along);
        let y = along.reduce(rank, self.reduction, Reduced::new(x.view()));
        let found = recorded.then(|| {
            let mut found = rank.alloc_statistics(along.columns());
            let (column, positions) = (y.view(), along.positions());
            let args = FindInDimArgs { x: x.view(), column, positions, found: found.view_mut() };
            rank.backend().find_in_dim(along.dim, args);
            along.all_reduce(rank, ReduceOp::Max, &mut found);
            found
        });
        (as_activation(rank, &y), found)
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<0>>,
        AlwaysRecomputed(found): AlwaysRecomputed<Option<Buffer>>,
    ) {
        let OperationBackward { gradients, inputs: [x], gradient: dy, .. } = backward;
        let found = found.expect("a recorded maximum has found its elements");
        let (rank, along) = (gradients.rank, &self.along);
        let mut dx = rank.alloc_activation(along.columns() * along.dim.len);
        let (found, positions) = (found.view(), along.positions());
        let args = PlaceInDimArgs { found, positions, dy: dy.view(), dx: dx.view_mut() };
        rank.backend().place_in_dim(along.dim, args);
        x.add_gradient(gradients, Arc::new(dx));
    }
}

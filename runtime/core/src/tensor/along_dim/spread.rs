//! Variances and Euclidean norms along a dim.

use std::sync::Arc;

use crate::autograd::Value;
use meshwright_backend::{Buffer, DimFunction, DimReduction, Node, UnaryFunction};

use super::super::{
    AlwaysRecomputed, Count, InBackward, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, apply,
};
use super::{AlongDim, Reduced, as_activation, map_statistics, wide_gradient};

/// Returns the variance along a dim, divided by the number of elements.
#[track_caller]
pub(super) fn variance(x: &Value, along: AlongDim) -> Value {
    apply_spread(x, along, Spread::Variance)
}

/// Returns the square root of the sum of squares along a dim.
#[track_caller]
pub(super) fn norm(x: &Value, along: AlongDim) -> Value {
    apply_spread(x, along, Spread::Norm)
}

#[track_caller]
fn apply_spread(x: &Value, along: AlongDim, spread: Spread) -> Value {
    let extents = along.extents_left(x);
    let inputs = [OperationInput::new(x, InBackward::Reads)];
    apply(
        SpreadOperation { along, spread },
        Operands { rank: x.rank(), path: "", inputs, params: [], extents },
    )
}

#[derive(Clone, Copy)]
enum Spread {
    Variance,
    Norm,
}

struct SpreadOperation {
    along: AlongDim,
    spread: Spread,
}

impl Operation<Count<1>, Count<0>> for SpreadOperation {
    /// The mean of each column, or its norm.
    type Saved = AlwaysRecomputed<Buffer>;

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<0>>) -> (Buffer, Buffer) {
        let OperationForward { rank, inputs: [x], .. } = forward;
        let (x, along) = (x.compute().data, &self.along);
        let squares = |column, scale| {
            let args = Reduced { column, scale, ..Reduced::new(x.view()) };
            along.reduce(rank, DimReduction::SquareSum, args)
        };
        match self.spread {
            Spread::Variance => {
                let share = 1.0 / along.extent.global as f32;
                let mean = along.sum(rank, x.view(), share);
                let variance = squares(Some(mean.view()), share);
                (as_activation(rank, &variance), mean)
            }
            Spread::Norm => {
                let nodes = vec![Node::Leaf(0), Node::Apply(UnaryFunction::Sqrt, 0)];
                let norm = map_statistics(rank, nodes, &[squares(None, 1.0).view()]);
                (as_activation(rank, &norm), norm)
            }
        }
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<0>>,
        AlwaysRecomputed(statistic): AlwaysRecomputed<Buffer>,
    ) {
        let OperationBackward { gradients, inputs: [mut x], gradient: dy, .. } = backward;
        let (rank, along) = (gradients.rank, &self.along);
        let data = x.take_saved(rank);
        let (function, factor) = match self.spread {
            Spread::Variance => (DimFunction::Centered, 2.0 / along.extent.global as f32),
            Spread::Norm => (DimFunction::Direction, 1.0),
        };
        let dy = wide_gradient(rank, &dy, factor);
        let dx = along.map(rank, function, [data.view(); 2], [statistic.view(), dy.view()]);
        x.add_gradient(gradients, Arc::new(dx));
    }
}

//! The logarithm of the sum of exponentials along a dim.

use std::sync::Arc;

use crate::autograd::Value;
use meshwright_backend::{Buffer, DimFunction, Node, UnaryFunction};

use super::super::{
    AlwaysRecomputed, Count, InBackward, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, apply,
};
use super::{AlongDim, as_activation, map_statistics, wide_gradient};

/// Returns `log(sum(exp(x)))` along a dim.
#[track_caller]
pub(super) fn log_sum_exp(x: &Value, along: AlongDim) -> Value {
    let extents = along.extents_left(x);
    let inputs = [OperationInput::new(x, InBackward::Reads)];
    apply(
        LogSumExpOperation { along },
        Operands { rank: x.rank(), path: "", inputs, params: [], extents },
    )
}

struct LogSumExpOperation {
    along: AlongDim,
}

impl Operation<Count<1>, Count<0>> for LogSumExpOperation {
    /// The maximum of each column, and the sum of exponentials relative to it.
    type Saved = AlwaysRecomputed<[Buffer; 2]>;

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<0>>) -> (Buffer, [Buffer; 2]) {
        let OperationForward { rank, inputs: [x], .. } = forward;
        let [max, sum] = self.along.max_exp_sum(rank, x.compute().data.view());
        let nodes =
            vec![Node::Leaf(0), Node::Leaf(1), Node::Apply(UnaryFunction::Log, 1), Node::Add(0, 2)];
        let result = map_statistics(rank, nodes, &[max.view(), sum.view()]);
        (as_activation(rank, &result), [max, sum])
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<0>>,
        AlwaysRecomputed([max, sum]): AlwaysRecomputed<[Buffer; 2]>,
    ) {
        let OperationBackward { gradients, inputs: [mut x], gradient: dy, .. } = backward;
        let rank = gradients.rank;
        let data = x.take_saved(rank);
        let dy = wide_gradient(rank, &dy, 1.0);
        let nodes = vec![Node::Leaf(0), Node::Leaf(1), Node::Div(0, 1)];
        let factor = map_statistics(rank, nodes, &[dy.view(), sum.view()]);
        let columns = [max.view(), factor.view()];
        let dx = self.along.map(rank, DimFunction::ScaledExp, [data.view(); 2], columns);
        x.add_gradient(gradients, Arc::new(dx));
    }
}

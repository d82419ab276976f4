//! Softmax and log-softmax along a dim.

use std::sync::Arc;

use crate::autograd::Value;
use meshwright_backend::{Buffer, DimFunction, DimReduction};

use super::super::{
    AlwaysRecomputed, Count, InBackward, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, apply,
};
use super::{AlongDim, Reduced, logarithms};

/// Returns `exp(x) / sum(exp(x))` along a dim.
#[track_caller]
pub(super) fn softmax(x: &Value, along: AlongDim) -> Value {
    if along.dim.inner == 1 && along.is_whole(x.rank()) {
        return softmax_of_rows(x, along.dim.len);
    }
    apply_along(x, SoftmaxAlongDim { along, is_log: false })
}

/// Returns `x - log(sum(exp(x)))` along a dim.
#[track_caller]
pub(super) fn log_softmax(x: &Value, along: AlongDim) -> Value {
    apply_along(x, SoftmaxAlongDim { along, is_log: true })
}

/// Returns the softmax of rows of `cols` elements.
#[track_caller]
pub(in super::super) fn softmax_of_rows(x: &Value, cols: usize) -> Value {
    apply_along(x, SoftmaxOperation { cols })
}

#[track_caller]
fn apply_along(x: &Value, operation: impl Operation<Count<1>, Count<0>>) -> Value {
    let inputs = [OperationInput::new(x, InBackward::Ignores)];
    let extents = x.extents().to_vec();
    apply(operation, Operands { rank: x.rank(), path: "", inputs, params: [], extents })
}

/// Softmax along any dim; its backward reads the output only.
struct SoftmaxAlongDim {
    along: AlongDim,
    /// True for the logarithm of it.
    is_log: bool,
}

impl Operation<Count<1>, Count<0>> for SoftmaxAlongDim {
    type Saved = AlwaysRecomputed<()>;

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<0>>) -> (Buffer, ()) {
        let OperationForward { rank, inputs: [x], .. } = forward;
        let (x, along) = (x.compute().data, &self.along);
        let [max, sum] = along.max_exp_sum(rank, x.view());
        let map =
            |function, d: &Buffer| along.map(rank, function, [x.view(); 2], [max.view(), d.view()]);
        let y = if self.is_log {
            map(DimFunction::LogSoftmax, &logarithms(rank, &sum))
        } else {
            map(DimFunction::Softmax, &sum)
        };
        (y, ())
    }

    fn saves_output(&self) -> bool {
        true
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<0>>,
        _: AlwaysRecomputed<()>,
    ) {
        let OperationBackward { gradients, inputs: [x], output, gradient: dy, .. } = backward;
        let (rank, along) = (gradients.rank, &self.along);
        let y = output.expect("the output is saved");
        let (function, total) = if self.is_log {
            (DimFunction::LogSoftmaxGrad, along.sum(rank, dy.view(), 1.0))
        } else {
            let args = Reduced { second: Some(dy.view()), ..Reduced::new(y.view()) };
            (DimFunction::SoftmaxGrad, along.reduce(rank, DimReduction::DotSum, args))
        };
        let dx = along.map(rank, function, [y.view(), dy.view()], [total.view(); 2]);
        x.add_gradient(gradients, Arc::new(dx));
    }
}

/// Softmax over rows of `cols` elements; its backward reads the output only.
struct SoftmaxOperation {
    cols: usize,
}

impl Operation<Count<1>, Count<0>> for SoftmaxOperation {
    type Saved = AlwaysRecomputed<()>;

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<0>>) -> (Buffer, ()) {
        let OperationForward { rank, inputs: [x], .. } = forward;
        let x = x.compute().data;
        let mut out = rank.alloc_activation(x.len());
        rank.backend().softmax(self.cols, x.view(), out.view_mut());
        (out, ())
    }

    fn saves_output(&self) -> bool {
        true
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<0>>,
        _: AlwaysRecomputed<()>,
    ) {
        let OperationBackward { gradients, inputs: [x], output, gradient: dy, .. } = backward;
        let out = output.expect("the output is saved");
        let mut dx = gradients.rank.alloc_activation(out.len());
        let backend = gradients.rank.backend();
        backend.softmax_backward(self.cols, out.view(), dy.view(), dx.view_mut());
        x.add_gradient(gradients, Arc::new(dx));
    }
}

//! The bias of a router's logits, which are f32 for every compute dtype.

use std::sync::Arc;

use crate::layout::AxisSet;
use crate::tensor::{
    AlwaysRecomputed, Count, InBackward, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, OperationParam, ParamRef, Value, apply,
};
use meshwright_backend::{Buffer, DType, Expr, LeafGrad, Node};

/// Adds a bias to the logits of each token. A bias of another dtype is widened to f32 before the addition.
#[track_caller]
pub(super) fn add_logit_bias(logits: &Value, bias: &ParamRef, gradient_axes: AxisSet) -> Value {
    let param = OperationParam { param: bias, gradient_axes, in_backward: InBackward::Ignores };
    let operands = Operands::<Count<1>, Count<1>> {
        rank: logits.rank(),
        path: bias.path(),
        inputs: [OperationInput::new(logits, InBackward::Ignores)],
        params: [param],
        extents: logits.extents().to_vec(),
    };
    apply(AddLogitBias, operands)
}

struct AddLogitBias;

impl AddLogitBias {
    /// Returns the expression of logits with a row that is added to the logits of each token.
    fn sum_with_row() -> Expr {
        Expr { nodes: vec![Node::Leaf(0), Node::Row(1), Node::Add(0, 1)] }
    }
}

impl Operation<Count<1>, Count<1>> for AddLogitBias {
    type Saved = AlwaysRecomputed<()>;

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<1>>) -> (Buffer, ()) {
        let OperationForward { rank, inputs: [logits], params: [bias], .. } = forward;
        let logits = logits.compute().data;
        let mut out = rank.alloc_statistics(logits.len());
        let wide = (bias.dtype() != DType::F32).then(|| {
            let mut wide = rank.alloc_scratch(DType::F32, bias.len());
            rank.backend().cast(bias, wide.view_mut());
            wide
        });
        let bias = wide.as_ref().map_or(bias, Buffer::view);
        let leaves = [logits.view(), bias];
        rank.backend().map(&AddLogitBias::sum_with_row(), &leaves, out.view_mut());
        (out, ())
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<1>>,
        _: AlwaysRecomputed<()>,
    ) {
        let OperationBackward { gradients, inputs: [logits], params: [bias], gradient, .. } =
            backward;
        logits.add_gradient(gradients, Arc::clone(&gradient));
        let experts = bias.param().local_len();
        gradients.weight_gradient(move |gradients| {
            let rank = gradients.rank;
            let mut sums = rank.alloc_scratch(DType::F32, experts);
            if bias.is_trained() {
                // The sums do not depend on the values of logits and bias.
                let any = rank.alloc_scratch(DType::F32, experts);
                let leaves = [gradient.view(), any.view()];
                let of_bias = LeafGrad { view: sums.view_mut(), accumulate: false };
                let expr = AddLogitBias::sum_with_row();
                let results = &mut [None, Some(of_bias)];
                rank.backend().map_backward(&expr, &leaves, gradient.view(), results);
            }
            bias.finish_with(gradients, &sums);
        });
    }
}

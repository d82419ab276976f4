//! Combination: brings the results of experts back to the tokens, and adds them up by weight.

use std::rc::Rc;
use std::sync::Arc;

use crate::tensor::{
    AlwaysRecomputed, Count, InBackward, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, Value, alloc_like, apply,
};
use meshwright_backend::Buffer;
use meshwright_backend::ops::routing::{
    CombineTokensArgs, CombineWeightGradArgs, DispatchTokensArgs,
};

use super::choices::Choices;
use super::exchange::Exchange;

/// Brings `rows`, the results of experts, back to their tokens. The result of a token is the sum of the rows of its
/// choices by their weights.
#[track_caller]
pub(super) fn combine_rows(
    choices: &Rc<Choices>,
    exchange: &Rc<Exchange>,
    rows: &Value,
    weights: &Value,
) -> Value {
    let feature = rows.extents()[1];
    // Rows that come from other ranks are saved as they arrive.
    let rows_in_backward =
        if exchange.is_local() { InBackward::Reads } else { InBackward::Ignores };
    let operation =
        Combine { choices: Rc::clone(choices), exchange: Rc::clone(exchange), cols: feature.local };
    let operands = Operands::<Count<2>, Count<0>> {
        rank: &choices.rank,
        path: choices.site.field(),
        inputs: [
            OperationInput::new(rows, rows_in_backward),
            OperationInput::new(weights, InBackward::Reads),
        ],
        params: [],
        extents: [&choices.tokens[..], &[feature]].concat(),
    };
    apply(operation, operands)
}

struct Combine {
    choices: Rc<Choices>,
    exchange: Rc<Exchange>,
    cols: usize,
}

impl Operation<Count<2>, Count<0>> for Combine {
    /// The rows as they have come back, if they were on other ranks.
    type Saved = AlwaysRecomputed<Option<Arc<Buffer>>>;

    fn forward(
        &self,
        forward: OperationForward<'_, Count<2>, Count<0>>,
    ) -> (Buffer, Option<Arc<Buffer>>) {
        let OperationForward { rank, inputs, .. } = forward;
        let [rows, weights] = inputs.map(|value| value.compute().data);
        let rows = self.exchange.to_tokens(rank, rows, self.cols);
        let mut out = alloc_like(&rows, self.choices.shape.tokens * self.cols);
        rank.backend().combine_tokens(
            self.choices.shape,
            CombineTokensArgs {
                x: rows.view(),
                positions: self.choices.positions.view(),
                weights: Some(weights.view()),
                out: out.view_mut(),
            },
        );
        (out, (!self.exchange.is_local()).then_some(rows))
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<2>, Count<0>>,
        AlwaysRecomputed(returned): AlwaysRecomputed<Option<Arc<Buffer>>>,
    ) {
        let OperationBackward { gradients, inputs: [mut rows, mut weights], gradient: dy, .. } =
            backward;
        let (rank, shape) = (gradients.rank, self.choices.shape);
        let backend = rank.backend();
        let returned = returned.unwrap_or_else(|| rows.take_saved(rank));
        let values = weights.take_saved(rank);
        if weights.requires_grad() {
            let mut dweights = rank.alloc_statistics(shape.choices());
            backend.combine_weight_grad(
                shape,
                CombineWeightGradArgs {
                    x: returned.view(),
                    positions: self.choices.positions.view(),
                    dy: dy.view(),
                    dweights: dweights.view_mut(),
                },
            );
            weights.add_gradient(gradients, Arc::new(dweights));
        }
        if rows.requires_grad() {
            let mut drows = alloc_like(&dy, shape.choices() * self.cols);
            drop(returned);
            backend.dispatch_tokens(
                shape,
                DispatchTokensArgs {
                    x: dy.view(),
                    order: self.choices.order.view(),
                    weights: Some(values.view()),
                    out: drows.view_mut(),
                },
            );
            let drows = self.exchange.to_experts(rank, drows, self.cols);
            rows.add_gradient(gradients, Arc::new(drows));
        }
    }
}

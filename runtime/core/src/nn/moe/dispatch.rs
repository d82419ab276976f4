//! Token dispatch: brings the rows of tokens to the experts that they have chosen.

use std::rc::Rc;
use std::sync::Arc;

use crate::tensor::{
    AlwaysRecomputed, Count, Extent, InBackward, Operands, Operation, OperationBackward,
    OperationForward, OperationInput, Value, alloc_like, apply,
};
use meshwright_backend::Buffer;
use meshwright_backend::ops::routing::{CombineTokensArgs, DispatchTokensArgs};

use super::choices::Choices;
use super::exchange::Exchange;

/// Brings the rows of `x`, one for each token, to the experts of the tokens' choices. Each row of the result is that of
/// a choice of an expert of this rank.
#[track_caller]
pub(super) fn dispatch_rows(choices: &Rc<Choices>, exchange: &Rc<Exchange>, x: &Value) -> Value {
    let feature = x.extents()[choices.tokens.len()];
    let all_tokens: usize = choices.tokens.iter().map(|extent| extent.global).product();
    let rows = Extent::of_routing(
        choices.routing,
        all_tokens * choices.shape.top_k,
        exchange.rows.count(),
    );
    let operation = Dispatch {
        choices: Rc::clone(choices),
        exchange: Rc::clone(exchange),
        cols: feature.local,
    };
    let operands = Operands::<Count<1>, Count<0>> {
        rank: &choices.rank.with_routed_rows(Rc::clone(&exchange.rows)),
        path: choices.site.field(),
        inputs: [OperationInput::new(x, InBackward::Ignores)],
        params: [],
        extents: vec![rows, feature],
    };
    apply(operation, operands)
}

struct Dispatch {
    choices: Rc<Choices>,
    exchange: Rc<Exchange>,
    cols: usize,
}

impl Operation<Count<1>, Count<0>> for Dispatch {
    type Saved = AlwaysRecomputed<()>;

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<0>>) -> (Buffer, ()) {
        let OperationForward { rank, inputs: [x], .. } = forward;
        let x = x.compute().data;
        let mut rows = alloc_like(&x, self.choices.shape.choices() * self.cols);
        rank.backend().dispatch_tokens(
            self.choices.shape,
            DispatchTokensArgs {
                x: x.view(),
                order: self.choices.order.view(),
                weights: None,
                out: rows.view_mut(),
            },
        );
        (self.exchange.to_experts(rank, rows, self.cols), ())
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<0>>,
        _: AlwaysRecomputed<()>,
    ) {
        let OperationBackward { gradients, inputs: [x], gradient, .. } = backward;
        let rank = gradients.rank;
        let rows = self.exchange.to_tokens(rank, gradient, self.cols);
        let mut dx = alloc_like(&rows, self.choices.shape.tokens * self.cols);
        rank.backend().combine_tokens(
            self.choices.shape,
            CombineTokensArgs {
                x: rows.view(),
                positions: self.choices.positions.view(),
                weights: None,
                out: dx.view_mut(),
            },
        );
        x.add_gradient(gradients, Arc::new(dx));
    }
}

//! Auxiliary losses of a router, its load-balancing loss and its z-loss: terms of the objective that depend on its
//! logits.

use std::sync::Arc;

use crate::tensor::{
    AlwaysRecomputed, Count, InBackward, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, Value, apply,
};
use meshwright_backend::ops::routing::{RouterAuxiliaryLossArgs, RouterAuxiliaryLossBackwardArgs};
use meshwright_backend::{Buffer, Category, RouterScore};
use meshwright_mesh::__internal::local_len;

/// Computes an auxiliary loss for each token: `z * lse^2 + sum of factors[e] * p[e]` over the experts, where `lse` is
/// the log-sum-exp of the token's logits and `p` its probabilities.
#[track_caller]
pub(super) fn auxiliary_losses(
    logits: &Value,
    score: RouterScore,
    factors: &[f32],
    z: f32,
    path: &str,
) -> Value {
    let rank = logits.rank();
    let (tokens, _) = logits.extents().split_at(logits.extents().len() - 1);
    let operation = AuxiliaryLoss {
        tokens: local_len(tokens),
        experts: factors.len(),
        score,
        factors: Arc::new(rank.allocator().copy_of(factors, Category::Activations)),
        z,
    };
    let operands = Operands::<Count<1>, Count<0>> {
        rank,
        path,
        inputs: [OperationInput::new(logits, InBackward::Reads)],
        params: [],
        extents: tokens.to_vec(),
    };
    apply(operation, operands)
}

struct AuxiliaryLoss {
    tokens: usize,
    experts: usize,
    score: RouterScore,
    factors: Arc<Buffer>,
    z: f32,
}

impl Operation<Count<1>, Count<0>> for AuxiliaryLoss {
    type Saved = AlwaysRecomputed<()>;

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<0>>) -> (Buffer, ()) {
        let OperationForward { rank, inputs: [logits], .. } = forward;
        let logits = logits.compute().data;
        let mut out = rank.alloc_activation(self.tokens);
        rank.backend().router_auxiliary_loss(
            self.score,
            RouterAuxiliaryLossArgs {
                experts: self.experts,
                logits: logits.view(),
                factors: self.factors.view(),
                z: self.z,
                out: out.view_mut(),
            },
        );
        (out, ())
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<0>>,
        _: AlwaysRecomputed<()>,
    ) {
        let OperationBackward { gradients, inputs: [mut logits], gradient, .. } = backward;
        let rank = gradients.rank;
        let data = logits.take_saved(rank);
        let mut dlogits = rank.alloc_statistics(data.len());
        rank.backend().router_auxiliary_loss_backward(
            self.score,
            RouterAuxiliaryLossBackwardArgs {
                experts: self.experts,
                logits: data.view(),
                factors: self.factors.view(),
                z: self.z,
                dout: gradient.view(),
                dlogits: dlogits.view_mut(),
            },
        );
        logits.add_gradient(gradients, Arc::new(dlogits));
    }
}

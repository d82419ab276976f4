//! The top-k experts of each token, and their weights.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::tensor::{
    AlwaysRecomputed, Count, Extent, InBackward, Operands, Operation, OperationBackward,
    OperationForward, OperationInput, ParamRef, Rank, UnitSlice, Value, apply,
};
use meshwright_backend::ops::routing::{
    ChoiceScoresArgs, RouterWeightsArgs, RouterWeightsBackwardArgs, TopKArgs,
};
use meshwright_backend::{Buffer, Category, DType, RouterOptions};
use meshwright_mesh::__internal::local_len;

/// Returns the weights of the top-k experts of each token, in f32, and the chosen experts in u32.
#[track_caller]
pub(super) fn choose_experts(
    logits: &Value,
    k: usize,
    options: RouterOptions,
    choice_bias: Option<&ParamRef>,
    path: &str,
) -> (Value, Arc<Buffer>) {
    let (tokens, experts) = logits.extents().split_at(logits.extents().len() - 1);
    let chosen = Rc::new(OnceCell::new());
    let operation = Weights {
        tokens: local_len(tokens),
        experts: experts[0].local,
        k,
        options,
        choice_bias: choice_bias.cloned(),
        chosen: Rc::clone(&chosen),
    };
    let operands = Operands::<Count<1>, Count<0>> {
        rank: logits.rank(),
        path,
        inputs: [OperationInput::new(logits, InBackward::Reads)],
        params: [],
        extents: [tokens, &[Extent::whole(k)]].concat(),
    };
    let weights = apply(operation, operands);
    let chosen = chosen.get().expect("forward has chosen experts");
    (weights, Arc::clone(chosen))
}

struct Weights {
    tokens: usize,
    experts: usize,
    k: usize,
    options: RouterOptions,
    choice_bias: Option<ParamRef>,
    /// The chosen experts, written by forward.
    chosen: Rc<OnceCell<Arc<Buffer>>>,
}

impl Weights {
    /// Returns the scores that tokens choose by, unless they choose by the logits.
    fn choice_scores(&self, rank: &Rank, logits: &Buffer) -> Option<Buffer> {
        if self.choice_bias.is_none() && self.options.groups.is_none() {
            return None;
        }
        let bias = self.choice_bias.as_ref().map(ParamRef::values);
        let mut scores = rank.alloc_scratch(DType::F32, logits.len());
        rank.backend().choice_scores(
            self.options,
            ChoiceScoresArgs {
                experts: self.experts,
                logits: logits.view(),
                bias: bias.as_ref().map(UnitSlice::view),
                scores: scores.view_mut(),
            },
        );
        Some(scores)
    }
}

impl Operation<Count<1>, Count<0>> for Weights {
    /// The chosen experts.
    type Saved = AlwaysRecomputed<Arc<Buffer>>;

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<0>>) -> (Buffer, Arc<Buffer>) {
        let OperationForward { rank, inputs: [logits], .. } = forward;
        let Weights { tokens, experts, k, options, .. } = *self;
        let logits = logits.compute().data;
        let mut weights = rank.alloc_statistics(tokens * k);
        let mut choices = rank.allocator().alloc(DType::U32, tokens * k, Category::Activations);
        let scores = self.choice_scores(rank, &logits);
        rank.backend().top_k(TopKArgs {
            experts,
            k,
            scores: scores.as_ref().unwrap_or(&logits).view(),
            // The weights overwrite the chosen scores.
            values: weights.view_mut(),
            choices: choices.view_mut(),
        });
        rank.backend().router_weights(
            options,
            RouterWeightsArgs {
                experts,
                k,
                logits: logits.view(),
                choices: choices.view(),
                weights: weights.view_mut(),
            },
        );
        let choices = Arc::clone(self.chosen.get_or_init(|| Arc::new(choices)));
        (weights, choices)
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<0>>,
        AlwaysRecomputed(choices): AlwaysRecomputed<Arc<Buffer>>,
    ) {
        let OperationBackward { gradients, inputs: [mut logits], gradient, .. } = backward;
        let rank = gradients.rank;
        let data = logits.take_saved(rank);
        let mut dlogits = rank.alloc_statistics(data.len());
        rank.backend().router_weights_backward(
            self.options,
            RouterWeightsBackwardArgs {
                experts: self.experts,
                k: self.k,
                logits: data.view(),
                choices: choices.view(),
                dweights: gradient.view(),
                dlogits: dlogits.view_mut(),
            },
        );
        logits.add_gradient(gradients, Arc::new(dlogits));
    }
}

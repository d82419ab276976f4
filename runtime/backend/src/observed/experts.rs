//! Routing of tokens to experts.

use crate::ops::routing::{
    ChoiceScoresArgs, CombineTokensArgs, CombineWeightGradArgs, DispatchTokensArgs,
    GroupByExpertArgs, RouterAuxiliaryLossArgs, RouterAuxiliaryLossBackwardArgs, RouterWeightsArgs,
    RouterWeightsBackwardArgs, TopKArgs,
};
use crate::{RouterOptions, RouterScore, RoutingOps, RoutingShape};

use super::bytes::{OperandBytes, bytes_of};
use super::{KernelOp, ObservedBackend};

impl RoutingOps for ObservedBackend {
    fn top_k(&self, args: TopKArgs) {
        let bytes = [args.scores.moved(), bytes_of(&[&args.values, &args.choices])];
        let dims = [args.scores.len().checked_div(args.experts).unwrap_or(0), args.experts];
        let _launch = self.report_pass(KernelOp::TopK, dims, args.scores.dtype(), bytes);
        self.backend.top_k(args);
    }

    fn group_by_expert(&self, args: GroupByExpertArgs) {
        let written = bytes_of(&[&args.counts, &args.order, &args.positions]);
        let (dims, dtype) = ([args.choices.len(), args.counts.len()], args.choices.dtype());
        let _launch =
            self.report_pass(KernelOp::GroupByExpert, dims, dtype, [args.choices.moved(), written]);
        self.backend.group_by_expert(args);
    }

    fn dispatch_tokens(&self, shape: RoutingShape, args: DispatchTokensArgs) {
        // Rows are read for each choice.
        let read = bytes_of(&[&args.order, &args.weights, &args.out]);
        let dims = [args.order.len(), args.out.len().checked_div(args.order.len()).unwrap_or(0)];
        let _launch = self.report_pass(
            KernelOp::DispatchTokens,
            dims,
            args.x.dtype(),
            [read, args.out.moved()],
        );
        self.backend.dispatch_tokens(shape, args);
    }

    fn combine_tokens(&self, shape: RoutingShape, args: CombineTokensArgs) {
        let read = bytes_of(&[&args.x, &args.positions, &args.weights]);
        let dims = [shape.choices(), args.out.len().checked_div(shape.tokens).unwrap_or(0)];
        let _launch = self.report_pass(
            KernelOp::CombineTokens,
            dims,
            args.x.dtype(),
            [read, args.out.moved()],
        );
        self.backend.combine_tokens(shape, args);
    }

    fn combine_weight_grad(&self, shape: RoutingShape, args: CombineWeightGradArgs) {
        let read = bytes_of(&[&args.x, &args.positions, &args.dy]);
        let dims = [shape.choices(), args.dy.len().checked_div(shape.tokens).unwrap_or(0)];
        let bytes = [read, args.dweights.moved()];
        let _launch = self.report_pass(KernelOp::CombineWeightGrad, dims, args.x.dtype(), bytes);
        self.backend.combine_weight_grad(shape, args);
    }

    fn choice_scores(&self, options: RouterOptions, args: ChoiceScoresArgs) {
        let dims = [args.logits.len().checked_div(args.experts).unwrap_or(0), args.experts];
        let bytes = [bytes_of(&[&args.logits, &args.bias]), args.scores.moved()];
        let _launch = self.report_pass(KernelOp::ChoiceScores, dims, args.logits.dtype(), bytes);
        self.backend.choice_scores(options, args);
    }

    fn router_weights(&self, options: RouterOptions, args: RouterWeightsArgs) {
        let read = bytes_of(&[&args.logits, &args.choices]);
        let dims = [args.logits.len().checked_div(args.experts).unwrap_or(0), args.experts];
        let bytes = [read, args.weights.moved()];
        let _launch = self.report_pass(KernelOp::RouterWeights, dims, args.logits.dtype(), bytes);
        self.backend.router_weights(options, args);
    }

    fn router_weights_backward(&self, options: RouterOptions, args: RouterWeightsBackwardArgs) {
        let read = bytes_of(&[&args.logits, &args.choices, &args.dweights]);
        let dims = [args.logits.len().checked_div(args.experts).unwrap_or(0), args.experts];
        let bytes = [read, args.dlogits.moved()];
        let _launch =
            self.report_pass(KernelOp::RouterWeightsBackward, dims, args.logits.dtype(), bytes);
        self.backend.router_weights_backward(options, args);
    }

    fn router_auxiliary_loss(&self, score: RouterScore, args: RouterAuxiliaryLossArgs) {
        let read = bytes_of(&[&args.logits, &args.factors]);
        let dims = [args.out.len(), args.experts];
        let bytes = [read, args.out.moved()];
        let _launch =
            self.report_pass(KernelOp::RouterAuxiliaryLoss, dims, args.logits.dtype(), bytes);
        self.backend.router_auxiliary_loss(score, args);
    }

    fn router_auxiliary_loss_backward(
        &self,
        score: RouterScore,
        args: RouterAuxiliaryLossBackwardArgs,
    ) {
        let read = bytes_of(&[&args.logits, &args.factors, &args.dout]);
        let dims = [args.dout.len(), args.experts];
        let bytes = [read, args.dlogits.moved()];
        let _launch = self.report_pass(
            KernelOp::RouterAuxiliaryLossBackward,
            dims,
            args.logits.dtype(),
            bytes,
        );
        self.backend.router_auxiliary_loss_backward(score, args);
    }
}

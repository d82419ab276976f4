//! Optimizers.

use crate::ops::optim::{AdamwArgs, SgdArgs};
use crate::{
    AdamGroup, AdamStep, OptimizerOps, SgdStep, StateRounding, UpdateExpr, UpdateOperands, View,
    ViewMut,
};

use super::bytes::{OperandBytes, bytes_of};
use super::{KernelOp, ObservedBackend};

impl OptimizerOps for ObservedBackend {
    fn adamw(&self, step: &AdamStep, groups: &[AdamGroup], args: AdamwArgs) {
        let state = bytes_of(&[&args.p, &args.m, &args.v]);
        let bytes = [state + args.g.moved(), state + args.copy.moved()];
        let _launch = self.report_pass(KernelOp::Adamw, [args.g.len(), 0], args.g.dtype(), bytes);
        self.backend.adamw(step, groups, args);
    }

    fn sgd(&self, step: &SgdStep, args: SgdArgs) {
        let state = bytes_of(&[&args.p, &args.momentum]);
        let bytes = [state + args.g.moved(), state + args.copy.moved()];
        let _launch =
            self.report_pass(KernelOp::SgdKernel, [args.g.len(), 0], args.g.dtype(), bytes);
        self.backend.sgd(step, args);
    }

    fn apply_update(&self, expr: &UpdateExpr, operands: UpdateOperands<'_>) {
        let state = operands.param.moved() + operands.states.moved();
        let gradient = operands.gradient;
        let bytes = [state + gradient.moved(), state + operands.copy.moved()];
        let _launch =
            self.report_pass(KernelOp::ApplyUpdate, [gradient.len(), 0], gradient.dtype(), bytes);
        self.backend.apply_update(expr, operands);
    }

    fn round_state(
        &self,
        state: usize,
        x: View,
        accumulate: bool,
        out: ViewMut,
        rounding: &[StateRounding],
    ) {
        let read = if accumulate { out.moved() } else { 0 };
        let bytes = [x.moved() + read, out.moved()];
        let _launch = self.report_pass(KernelOp::RoundState, [x.len(), 0], x.dtype(), bytes);
        self.backend.round_state(state, x, accumulate, out, rounding);
    }
}

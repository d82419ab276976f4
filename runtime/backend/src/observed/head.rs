//! Options of heads.

use crate::HeadOps;
use crate::ops::head::{FinishLogitsArgs, SmoothedGradArgs};

use super::bytes::{OperandBytes, bytes_of};
use super::{KernelOp, ObservedBackend};

impl HeadOps for ObservedBackend {
    fn finish_logits(&self, args: FinishLogitsArgs) {
        let (cols, moved) = (args.cols, args.logits.moved());
        let dims = [args.logits.len().checked_div(cols).unwrap_or(0), cols];
        let bytes = [moved + args.bias.moved(), moved];
        let _launch = self.report_pass(KernelOp::FinishLogits, dims, args.logits.dtype(), bytes);
        self.backend.finish_logits(args);
    }

    fn smoothed_grad(&self, args: SmoothedGradArgs) {
        let of_rows = bytes_of(&[&args.max, &args.sum_exp, &args.targets, &args.row_scale]);
        let moved = args.logits.moved();
        let dims = [args.targets.len(), args.cols];
        let bytes = [moved + of_rows, moved];
        let _launch = self.report_pass(KernelOp::SmoothedGrad, dims, args.logits.dtype(), bytes);
        self.backend.smoothed_grad(args);
    }
}

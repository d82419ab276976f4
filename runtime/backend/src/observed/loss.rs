//! Cross-entropy.

use crate::ops::loss::{
    CrossEntropyArgs, CrossEntropyGradArgs, CrossEntropyLossArgs, ExpSumArgs, MaxExpSumArgs,
};
use crate::{LossOps, View, ViewMut};

use super::bytes::{OperandBytes, bytes_of};
use super::{KernelOp, ObservedBackend};

impl LossOps for ObservedBackend {
    fn row_max(&self, cols: usize, x: View, max: ViewMut) {
        let bytes = [x.moved(), max.moved()];
        let _launch = self.report_pass(KernelOp::RowMax, [max.len(), cols], x.dtype(), bytes);
        self.backend.row_max(cols, x, max);
    }

    fn exp_sum(&self, args: ExpSumArgs) {
        let read = bytes_of(&[&args.logits, &args.max, &args.targets]);
        let bytes = [read, bytes_of(&[&args.sum_exp, &args.target_logit])];
        let dims = [args.targets.len(), args.cols];
        let _launch = self.report_pass(KernelOp::ExpSum, dims, args.logits.dtype(), bytes);
        self.backend.exp_sum(args);
    }

    fn max_exp_sum(&self, args: MaxExpSumArgs) {
        let read = bytes_of(&[&args.logits, &args.targets]);
        let bytes = [read, bytes_of(&[&args.max, &args.sum_exp, &args.target_logit])];
        let dims = [args.targets.len(), args.cols];
        let _launch = self.report_pass(KernelOp::MaxExpSum, dims, args.logits.dtype(), bytes);
        self.backend.max_exp_sum(args);
    }

    fn cross_entropy_loss(&self, args: CrossEntropyLossArgs) {
        let read = bytes_of(&[&args.max, &args.sum_exp, &args.target_logit, &args.targets]);
        let (dims, dtype) = ([args.targets.len(), 0], args.max.dtype());
        let _launch =
            self.report_pass(KernelOp::CrossEntropyLoss, dims, dtype, [read, args.sum.moved()]);
        self.backend.cross_entropy_loss(args);
    }

    fn cross_entropy_grad(&self, args: CrossEntropyGradArgs) {
        let read = bytes_of(&[&args.logits, &args.max, &args.sum_exp, &args.targets]);
        let bytes = [read + args.row_scale.moved(), args.logits.moved()];
        let dims = [args.targets.len(), args.cols];
        let _launch =
            self.report_pass(KernelOp::CrossEntropyGrad, dims, args.logits.dtype(), bytes);
        self.backend.cross_entropy_grad(args);
    }

    /// Rows are read once: a block keeps them until their gradient is computed.
    fn cross_entropy(&self, args: CrossEntropyArgs) {
        let read = bytes_of(&[&args.logits, &args.targets, &args.row_scale]);
        let statistics = bytes_of(&[&args.max, &args.sum_exp, &args.target_logit]);
        let bytes = [read, args.logits.moved() + statistics];
        let dims = [args.targets.len(), args.cols];
        let _launch =
            self.report_pass(KernelOp::CrossEntropyKernel, dims, args.logits.dtype(), bytes);
        self.backend.cross_entropy(args);
    }
}

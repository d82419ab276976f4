//! Attention.

use crate::ops::attention::{AttentionArgs, AttentionBackwardArgs, MergeAttentionArgs};
use crate::{AttentionOps, AttentionShape, DType};

use super::bytes::{bytes_of, dim};
use super::{Kernel, KernelOp, ObservedBackend};

/// Floating-point operations count the pairs of the band; those that key ranges mask count too.
impl AttentionOps for ObservedBackend {
    fn attention(&self, shape: &AttentionShape, args: AttentionArgs) {
        let read = bytes_of(&[&args.q, &args.k, &args.v]);
        let bytes = [read, bytes_of(&[&args.out, &args.lse])];
        let flops = shape.flops([1, 1]);
        let _launch =
            self.report(kernel(KernelOp::AttentionKernel, shape, args.q.dtype(), flops, bytes));
        self.backend.attention(shape, args);
    }

    fn attention_backward(&self, shape: &AttentionShape, args: AttentionBackwardArgs) {
        let gradients = bytes_of(&[&args.dq, &args.dk, &args.dv]);
        let accumulated = if args.accumulate { gradients } else { 0 };
        let operands = bytes_of(&[&args.q, &args.k, &args.v, &args.out, &args.lse, &args.dout]);
        let bytes = [operands + accumulated, gradients];
        let flops = shape.flops([3, 2]);
        let _launch =
            self.report(kernel(KernelOp::AttentionBackward, shape, args.q.dtype(), flops, bytes));
        self.backend.attention_backward(shape, args);
    }

    fn merge_attention(&self, shape: &AttentionShape, args: MergeAttentionArgs) {
        let sums = bytes_of(&[&args.sum, &args.sum_lse]);
        let bytes = [bytes_of(&[&args.out, &args.lse]) + sums, sums];
        let elements = args.sum.len();
        let dtype = args.out.dtype();
        let _launch = self.report_pass(KernelOp::MergeAttention, [elements, 0], dtype, bytes);
        self.backend.merge_attention(shape, args);
    }

    fn check_attention_heads(&self, dims: [usize; 2], dtype: DType) -> Result<(), String> {
        self.backend.check_attention_heads(dims, dtype)
    }

    fn attention_implementations(&self) -> Option<String> {
        self.backend.attention_implementations()
    }
}

fn kernel(
    op: KernelOp,
    shape: &AttentionShape,
    dtype: DType,
    flops: u64,
    [read, written]: [u64; 2],
) -> Kernel {
    let heads = shape.heads * shape.batch;
    let dims = [shape.queries.len, shape.keys.len, heads, shape.head_dim].map(dim);
    Kernel { op, dims, dtype, flops, read, written }
}

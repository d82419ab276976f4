//! Convolutions along a sequence.

use crate::ops::convolution::{CausalConvArgs, CausalConvWeightGradArgs, Neighbors};
use crate::{CausalConvShape, ConvolutionOps, UnfoldShape, View, ViewMut};

use super::bytes::{OperandBytes, accumulated, bytes_of};
use super::{KernelOp, ObservedBackend};

impl ConvolutionOps for ObservedBackend {
    fn causal_conv(&self, shape: &CausalConvShape, args: CausalConvArgs) {
        let read = bytes_of(&[&args.x, &args.weight]) + neighbor_bytes(&args.neighbors);
        let dims = [shape.rows(), shape.channels];
        let bytes = [read, args.y.moved()];
        let _launch = self.report_pass(KernelOp::CausalConvKernel, dims, args.x.dtype(), bytes);
        self.backend.causal_conv(shape, args);
    }

    fn causal_conv_weight_grad(&self, shape: &CausalConvShape, args: CausalConvWeightGradArgs) {
        let read = bytes_of(&[&args.x, &args.dy]) + neighbor_bytes(&args.neighbors);
        let bytes = [read + accumulated(Some(&args.dweight)), args.dweight.moved()];
        let dims = [shape.rows(), shape.channels];
        let _launch = self.report_pass(KernelOp::CausalConvWeightGrad, dims, args.x.dtype(), bytes);
        self.backend.causal_conv_weight_grad(shape, args);
    }

    fn unfold(&self, shape: &UnfoldShape, x: View, out: ViewMut) {
        let dims = [shape.batch * shape.len, shape.channels];
        let bytes = [x.moved(), out.moved()];
        let _launch = self.report_pass(KernelOp::UnfoldKernel, dims, x.dtype(), bytes);
        self.backend.unfold(shape, x, out);
    }

    fn fold(&self, shape: &UnfoldShape, dout: View, dx: ViewMut) {
        let dims = [shape.batch * shape.len, shape.channels];
        let bytes = [dout.moved(), dx.moved()];
        let _launch = self.report_pass(KernelOp::FoldKernel, dims, dx.dtype(), bytes);
        self.backend.fold(shape, dout, dx);
    }
}

fn neighbor_bytes(neighbors: &Neighbors<'_>) -> u64 {
    [neighbors.halo, neighbors.limits].iter().flatten().map(|operand| operand.moved()).sum()
}

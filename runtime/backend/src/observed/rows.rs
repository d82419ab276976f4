//! Operations on rows: norms, rotation, embedding and softmax.

use crate::ops::norm::{
    LayerNormArgs, LayerNormBackwardArgs, RmsNormArgs, RmsNormBackwardArgs, RmsNormSumsArgs,
    RowSums,
};
use crate::ops::rope::RopeArgs;
use crate::{
    DType, EmbeddingOps, LeafGrad, NormOps, ResidualSum, RopeOps, RopeShape, SoftmaxOps, View,
    ViewMut,
};

use super::bytes::{OperandBytes, accumulated, bytes_of};
use super::{KernelOp, ObservedBackend};

impl NormOps for ObservedBackend {
    fn rms_norm(&self, args: RmsNormArgs) {
        let [term, sum] = residual_bytes(args.residual.as_ref());
        let read = bytes_of(&[&args.x, &args.weight]) + term + sums_bytes(args.squares);
        let written = bytes_of(&[&args.y, &args.inv_rms]) + sum;
        let dims = rows_of(args.x, args.weight.len());
        let _launch =
            self.report_pass(KernelOp::RmsNormKernel, dims, args.x.dtype(), [read, written]);
        self.backend.rms_norm(args);
    }

    fn rms_norm_backward(&self, args: RmsNormBackwardArgs) {
        let operands = bytes_of(&[&args.x, &args.weight, &args.inv_rms, &args.dy]);
        let operands = operands + sums_bytes(args.dots);
        let bytes = gradient_bytes(operands, [Some(&args.dx), args.dweight.as_ref(), None]);
        let dims = rows_of(args.x, args.weight.len());
        let _launch = self.report_pass(KernelOp::RmsNormBackward, dims, args.x.dtype(), bytes);
        self.backend.rms_norm_backward(args);
    }

    fn rms_norm_sums(&self, args: RmsNormSumsArgs) {
        let (op, factors) = match &args.factors {
            Some(factors) => (KernelOp::RmsNormBackward, bytes_of(&[&factors.weight, &factors.dy])),
            None => (KernelOp::RmsNormKernel, 0),
        };
        let bytes = [bytes_of(&[&args.x]) + factors, args.sums.moved()];
        let _launch = self.report_pass(op, rows_of(args.x, args.cols), args.x.dtype(), bytes);
        self.backend.rms_norm_sums(args);
    }

    fn layer_norm(&self, args: LayerNormArgs) {
        let [term, sum] = residual_bytes(args.residual.as_ref());
        let read = bytes_of(&[&args.x, &args.weight, &args.bias]) + term;
        let written = bytes_of(&[&args.y, &args.mean, &args.inv_std]) + sum;
        let dims = rows_of(args.x, args.weight.len());
        let _launch =
            self.report_pass(KernelOp::LayerNormKernel, dims, args.x.dtype(), [read, written]);
        self.backend.layer_norm(args);
    }

    fn layer_norm_backward(&self, args: LayerNormBackwardArgs) {
        let operands = bytes_of(&[&args.x, &args.weight, &args.mean, &args.inv_std, &args.dy]);
        let gradients = [Some(&args.dx), args.dweight.as_ref(), args.dbias.as_ref()];
        let bytes = gradient_bytes(operands, gradients);
        let dims = rows_of(args.x, args.weight.len());
        let _launch = self.report_pass(KernelOp::LayerNormBackward, dims, args.x.dtype(), bytes);
        self.backend.layer_norm_backward(args);
    }
}

impl RopeOps for ObservedBackend {
    fn rope(&self, shape: &RopeShape, args: RopeArgs) {
        let read = bytes_of(&[&args.x, &args.cos, &args.sin]);
        let dims = rows_of(args.x, shape.head_dim);
        let _launch =
            self.report_pass(KernelOp::RopeKernel, dims, args.x.dtype(), [read, args.y.moved()]);
        self.backend.rope(shape, args);
    }
}

impl EmbeddingOps for ObservedBackend {
    fn embedding(&self, tokens: View, table: View, first_row: usize, out: ViewMut) {
        let bytes = [tokens.moved() + out.moved(), out.moved()];
        let dims = [tokens.len(), out.len().checked_div(tokens.len()).unwrap_or(0)];
        let _launch = self.report_pass(KernelOp::EmbeddingKernel, dims, out.dtype(), bytes);
        self.backend.embedding(tokens, table, first_row, out);
    }

    fn embedding_backward(
        &self,
        tokens: View,
        padding: Option<u32>,
        first_row: usize,
        dout: View,
        dtable: ViewMut,
    ) {
        let rows = (dout.len() * DType::F32.bytes()) as u64;
        let bytes = [tokens.moved() + dout.moved() + rows, rows];
        let dims = [tokens.len(), dout.len().checked_div(tokens.len()).unwrap_or(0)];
        let _launch = self.report_pass(KernelOp::EmbeddingBackward, dims, dout.dtype(), bytes);
        self.backend.embedding_backward(tokens, padding, first_row, dout, dtable);
    }
}

impl SoftmaxOps for ObservedBackend {
    fn softmax(&self, cols: usize, x: View, y: ViewMut) {
        let bytes = [x.moved(), y.moved()];
        let _launch = self.report_pass(KernelOp::Softmax, rows_of(x, cols), x.dtype(), bytes);
        self.backend.softmax(cols, x, y);
    }

    fn softmax_backward(&self, cols: usize, y: View, dy: View, dx: ViewMut) {
        let bytes = [y.moved() + dy.moved(), dx.moved()];
        let _launch =
            self.report_pass(KernelOp::SoftmaxBackward, rows_of(y, cols), y.dtype(), bytes);
        self.backend.softmax_backward(cols, y, dy, dx);
    }
}

/// Returns the number of rows, and of columns.
fn rows_of(x: View<'_>, cols: usize) -> [usize; 2] {
    [x.len().checked_div(cols).unwrap_or(0), cols]
}

/// Returns the bytes of sums over rows that a kernel reads.
fn sums_bytes(sums: Option<RowSums<'_>>) -> u64 {
    sums.map_or(0, |sums| sums.sums.moved())
}

/// Returns the bytes that a residual is read and written with.
fn residual_bytes(residual: Option<&ResidualSum<'_>>) -> [u64; 2] {
    residual.map_or([0; 2], |residual| [residual.term.moved(), residual.sum.moved()])
}

/// Returns the bytes that a backward reads, `operands` of them for its operands, and writes.
fn gradient_bytes(operands: u64, gradients: [Option<&LeafGrad<'_>>; 3]) -> [u64; 2] {
    let read: u64 = gradients.iter().map(|gradient| accumulated(*gradient)).sum();
    let written: u64 = gradients.iter().flatten().map(|gradient| gradient.moved()).sum();
    [operands + read, written]
}

//! Elements by their index, and running sums.

use crate::{IndexOps, IndexedDim, MiddleDim, View, ViewMut};

use super::bytes::OperandBytes;
use super::{KernelOp, ObservedBackend};

impl IndexOps for ObservedBackend {
    fn take_elements(&self, shape: &IndexedDim, indices: View, x: View, out: ViewMut) {
        let bytes = [indices.moved() + out.moved(), out.moved()];
        let dims = [out.len(), 0];
        let _launch = self.report_pass(KernelOp::TakeElements, dims, out.dtype(), bytes);
        self.backend.take_elements(shape, indices, x, out);
    }

    fn add_elements(&self, shape: &IndexedDim, indices: View, x: View, out: ViewMut) {
        let added = (x.len() * out.dtype().bytes()) as u64;
        let bytes = [indices.moved() + x.moved() + added, added];
        let _launch = self.report_pass(KernelOp::AddElements, [x.len(), 0], x.dtype(), bytes);
        self.backend.add_elements(shape, indices, x, out);
    }

    fn largest(&self, dim: MiddleDim, k: usize, x: View, positions: ViewMut) {
        let bytes = [x.moved() * k as u64, positions.moved()];
        let _launch = self.report_pass(KernelOp::Largest, [x.len(), 0], x.dtype(), bytes);
        self.backend.largest(dim, k, x, positions);
    }

    fn running_sum(&self, dim: MiddleDim, from_end: bool, x: View, y: ViewMut) {
        let bytes = [x.moved(), y.moved()];
        let _launch = self.report_pass(KernelOp::RunningSum, [x.len(), 0], x.dtype(), bytes);
        self.backend.running_sum(dim, from_end, x, y);
    }
}

//! Operations along a middle dim.

use crate::ops::middle_dim::{FindInDimArgs, MapDimArgs, PlaceInDimArgs, ReduceDimArgs};
use crate::{DimFunction, DimReduction, MiddleDim, MiddleDimOps};

use super::bytes::OperandBytes;
use super::{KernelOp, ObservedBackend};

impl MiddleDimOps for ObservedBackend {
    fn reduce_dim(&self, dim: MiddleDim, reduction: DimReduction, args: ReduceDimArgs) {
        let has_second = reduction == DimReduction::DotSum;
        let second = if has_second { args.second.moved() } else { 0 };
        let bytes = [args.x.moved() + second + args.column.moved(), args.y.moved()];
        let _launch = self.report_pass(KernelOp::ReduceDim, sizes(dim), args.x.dtype(), bytes);
        self.backend.reduce_dim(dim, reduction, args);
    }

    fn map_dim(&self, dim: MiddleDim, function: DimFunction, args: MapDimArgs) {
        let has_second = matches!(function, DimFunction::SoftmaxGrad | DimFunction::LogSoftmaxGrad);
        let second = if has_second { args.second.moved() } else { args.d.moved() };
        let bytes = [args.x.moved() + second + args.c.moved(), args.y.moved()];
        let _launch = self.report_pass(KernelOp::MapDim, sizes(dim), args.x.dtype(), bytes);
        self.backend.map_dim(dim, function, args);
    }

    fn find_in_dim(&self, dim: MiddleDim, args: FindInDimArgs) {
        let bytes = [args.x.moved() + args.column.moved(), args.found.moved()];
        let _launch = self.report_pass(KernelOp::FindInDim, sizes(dim), args.x.dtype(), bytes);
        self.backend.find_in_dim(dim, args);
    }

    fn place_in_dim(&self, dim: MiddleDim, args: PlaceInDimArgs) {
        let bytes = [args.found.moved() + args.dy.moved(), args.dx.moved()];
        let _launch = self.report_pass(KernelOp::PlaceInDim, sizes(dim), args.dy.dtype(), bytes);
        self.backend.place_in_dim(dim, args);
    }
}

fn sizes(dim: MiddleDim) -> [usize; 2] {
    [dim.outer * dim.len, dim.inner]
}

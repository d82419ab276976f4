//! Matmuls.

use crate::{BatchedGemm, Gemm, GemmEpilogue, MatmulOps, View, ViewMut};

use super::bytes::{OperandBytes, dim};
use super::{Kernel, KernelOp, ObservedBackend};

impl MatmulOps for ObservedBackend {
    fn gemm(&self, g: &Gemm, a: View, b: View, c: ViewMut) {
        let _launch = self.report(kernel(KernelOp::Gemm, g, (a, b, &c)));
        self.backend.gemm(g, a, b, c);
    }

    fn grouped_gemm(&self, g: &Gemm, a: View, b: View, c: ViewMut) {
        let _launch = self.report(kernel(KernelOp::GroupedGemm, g, (a, b, &c)));
        self.backend.grouped_gemm(g, a, b, c);
    }

    fn batched_gemm(&self, g: &BatchedGemm, a: View, b: View, c: ViewMut) {
        let Gemm { m, n, k, accumulate, .. } = g.gemm;
        let (count, inputs, result) = (g.count(), a.dtype().bytes(), c.dtype().bytes());
        let written = (count * m * n * result) as u64;
        let kernel = Kernel {
            op: KernelOp::BatchedMatmul,
            dims: [dim(m), dim(n), dim(k), dim(count)],
            dtype: a.dtype(),
            flops: g.flops(),
            read: (count * (m * k + k * n) * inputs) as u64 + if accumulate { written } else { 0 },
            written,
        };
        let _launch = self.report(kernel);
        self.backend.batched_gemm(g, a, b, c);
    }

    fn has_epilogues(&self) -> bool {
        self.backend.has_epilogues()
    }

    fn gemm_with_epilogue(
        &self,
        g: &Gemm,
        a: View,
        b: View,
        epilogue: GemmEpilogue<'_>,
        c: ViewMut,
    ) -> bool {
        let mut kernel = kernel(KernelOp::Gemm, g, (a, b, &c));
        match &epilogue {
            GemmEpilogue::Bias(bias) => {
                kernel.dims[3] = 1;
                kernel.read += bias.moved();
            }
            GemmEpilogue::BiasGelu { bias, pre_activation } => {
                kernel.dims[3] = 2;
                kernel.read += bias.moved();
                kernel.written += pre_activation.moved();
            }
        }
        let _launch = self.begin_launch();
        let has_run = self.backend.gemm_with_epilogue(g, a, b, epilogue, c);
        if has_run {
            self.note(&kernel);
        }
        has_run
    }
}

fn kernel(op: KernelOp, g: &Gemm, (a, b, c): (View<'_>, View<'_>, &ViewMut<'_>)) -> Kernel {
    let accumulated = if g.accumulate { c.moved() } else { 0 };
    Kernel {
        op,
        dims: [dim(g.m), dim(g.n), dim(g.k), 0],
        dtype: a.dtype(),
        flops: 2 * g.m as u64 * g.n as u64 * g.k as u64,
        read: a.moved() + b.moved() + accumulated,
        written: c.moved(),
    }
}

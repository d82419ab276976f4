//! Matmuls of the vendor library, with their epilogues.

use crate::driver::{DriverCalls, unwrap_call};
use crate::{CudaBackend, DriverError, MatMul, MatMulBatch, MatMulEpilogue, MatMulOperands};
use meshwright_backend::{
    Backend, BatchLoop, BatchedGemm, Gemm, GemmEpilogue, MatmulOps, StreamKind, View, ViewMut,
};

use super::launch::address;

impl MatmulOps for CudaBackend {
    fn gemm(&self, g: &Gemm, a: View, b: View, c: ViewMut) {
        let operands = MatMulOperands::plain(address(a), address(b), address(c.as_view()));
        self.submit_matmul(&plain_matmul(g, a, b, &c), &operands);
    }

    fn grouped_gemm(&self, g: &Gemm, a: View, b: View, c: ViewMut) {
        let operands = MatMulOperands::plain(address(a), address(b), address(c.as_view()));
        let shape = MatMul { is_grouped: true, ..plain_matmul(g, a, b, &c) };
        self.submit_matmul(&shape, &operands);
    }

    fn batched_gemm(&self, g: &BatchedGemm, a: View, b: View, c: ViewMut) {
        g.check([a.len(), b.len(), c.len()]);
        assert_eq!(a.dtype(), b.dtype(), "operands of a matmul have one dtype");
        // The library takes one loop, the longer one.
        let [mut outer, mut inner] = g.batch;
        if outer.count > inner.count {
            std::mem::swap(&mut outer, &mut inner);
        }
        let BatchLoop { count, strides } = inner;
        let shape = MatMul {
            gemm: g.gemm,
            inputs: a.dtype(),
            result: c.dtype(),
            epilogue: MatMulEpilogue::Plain,
            is_grouped: false,
            batch: Some(MatMulBatch { count, lead: g.lead, strides }),
        };
        let bytes = [a.dtype(), b.dtype(), c.dtype()].map(|dtype| dtype.bytes());
        let starts = [address(a), address(b), address(c.as_view())];
        for index in 0..outer.count {
            let [a, b, c] = [0, 1, 2].map(|operand| {
                starts[operand] + (index * outer.strides[operand] * bytes[operand]) as u64
            });
            self.submit_matmul(&shape, &MatMulOperands::plain(a, b, c));
        }
    }

    fn has_epilogues(&self) -> bool {
        true
    }

    fn gemm_with_epilogue(
        &self,
        g: &Gemm,
        a: View,
        b: View,
        epilogue: GemmEpilogue<'_>,
        c: ViewMut,
    ) -> bool {
        let mut shape = plain_matmul(g, a, b, &c);
        let mut operands = MatMulOperands::plain(address(a), address(b), address(c.as_view()));
        let check = |name: &str, view: View, dtype, len| {
            assert!(
                view.dtype() == dtype && view.len() == len,
                "{name} of a matmul fits its result"
            );
            address(view)
        };
        match epilogue {
            GemmEpilogue::Bias(bias) => {
                shape.epilogue = MatMulEpilogue::Bias;
                operands.bias = check("the bias", bias, c.dtype(), g.n);
            }
            GemmEpilogue::BiasGelu { bias, pre_activation } => {
                shape.epilogue = MatMulEpilogue::BiasGelu { aux: pre_activation.is_some() };
                operands.bias = check("the bias", bias, c.dtype(), g.n);
                operands.aux = pre_activation.map_or(0, |pre_activation| {
                    check("the pre-activation", pre_activation.as_view(), c.dtype(), g.m * g.n)
                });
            }
        }
        let MatMulOperands { a, b, c, bias, aux } = operands;
        let is_aligned = |address: u64| address.is_multiple_of(MatMulOperands::ALIGNMENT);
        [a, b, c, bias, aux].into_iter().all(is_aligned)
            && unwrap_call(self.gpu().driver().has_matmul(&shape))
            && self.submit_matmul(&shape, &operands)
    }
}

impl CudaBackend {
    /// Submits a matmul of operands that have its sizes. Returns false if the library refuses its epilogue; a plain
    /// matmul is never refused.
    fn submit_matmul(&self, shape: &MatMul, operands: &MatMulOperands) -> bool {
        let gpu = self.gpu();
        let stream = gpu.stream(StreamKind::Compute);
        let is_submitted = gpu.retry_after_trim(|| {
            // SAFETY: the operands have the sizes of the matmul, and work submitted to one stream is done in order.
            match unsafe { gpu.driver().matmul(stream, shape, operands) } {
                Err(DriverError::Refused { .. }) if shape.epilogue != MatMulEpilogue::Plain => {
                    Ok(false)
                }
                submitted => submitted.map(|()| true),
            }
        });
        if is_submitted {
            self.count_flops(shape.batched_gemm().flops());
        }
        is_submitted
    }
}

/// Returns the plain matmul of these operands.
///
/// # Panics
/// When they have other sizes.
fn plain_matmul(g: &Gemm, a: View, b: View, c: &ViewMut) -> MatMul {
    assert!(
        a.len() == g.m * g.k
            && b.len() == g.k * g.n
            && c.len() == g.m * g.n
            && a.dtype() == b.dtype(),
        "operands of a matmul have its sizes and one dtype"
    );
    MatMul {
        gemm: *g,
        inputs: a.dtype(),
        result: c.dtype(),
        epilogue: MatMulEpilogue::Plain,
        is_grouped: false,
        batch: None,
    }
}

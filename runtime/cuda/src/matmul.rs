//! Matmuls as a driver computes them: shapes, epilogues and operands.

use std::fmt;

use meshwright_backend::{BatchLoop, BatchedGemm, DType, Gemm};

/// Shape and dtypes of a matmul of row-major operands; it accumulates in f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MatMul {
    /// Sizes, transposition and accumulation.
    pub gemm: Gemm,
    /// Dtype of both inputs.
    pub inputs: DType,
    /// Dtype of the result: that of the inputs, or f32.
    pub result: DType,
    /// Operation fused into the matmul.
    pub epilogue: MatMulEpilogue,
    /// True for a matmul of a grouped GEMM, whose sizes change from call to call: the library's heuristic chooses the
    /// algorithm each time, and nothing is autotuned or kept.
    pub is_grouped: bool,
    /// The matrices of a batch, which may be parts of larger operands; `None` for one matmul of whole operands.
    pub batch: Option<MatMulBatch>,
}

/// Matrices of a batch of matmuls, each at the same distance from the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MatMulBatch {
    /// Number of matmuls.
    pub count: usize,
    /// Distance between the starts of consecutive rows of `a`, `b` and `c`, in elements.
    pub lead: [usize; 3],
    /// Distance between consecutive matrices of `a`, `b` and `c`, in elements.
    pub strides: [usize; 3],
}

impl MatMul {
    /// Returns the matmuls as those of a backend.
    pub fn batched_gemm(&self) -> BatchedGemm {
        let Gemm { m, n, k, trans_a, trans_b, .. } = self.gemm;
        let whole = [if trans_a { m } else { k }, if trans_b { k } else { n }, n];
        let batch = self.batch.unwrap_or(MatMulBatch { count: 1, lead: whole, strides: [0; 3] });
        let inner = BatchLoop { count: batch.count, strides: batch.strides };
        BatchedGemm { gemm: self.gemm, lead: batch.lead, batch: [BatchLoop::ONE, inner] }
    }
}

/// Prints sizes, transposed inputs in BLAS notation, dtypes and the epilogue.
impl fmt::Display for MatMul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MatMul { gemm, inputs, result, epilogue, batch, .. } = self;
        let Gemm { m, n, k, trans_a, trans_b, accumulate } = gemm;
        let [a, b] = [trans_a, trans_b].map(|transposed| if *transposed { 'T' } else { 'N' });
        let accumulate = if *accumulate { " accumulate" } else { "" };
        let epilogue = match epilogue {
            MatMulEpilogue::Plain => "",
            MatMulEpilogue::Bias => " bias",
            MatMulEpilogue::BiasGelu { aux: false } => " bias GELU",
            MatMulEpilogue::BiasGelu { aux: true } => " bias GELU AUX",
        };
        if let Some(MatMulBatch { count, .. }) = batch {
            write!(f, "{count} of ")?;
        }
        write!(f, "{m} x {n} x {k} {a}{b} {inputs} -> {result}{accumulate}{epilogue}")
    }
}

/// Operation that a matmul fuses with writing its result, in one kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatMulEpilogue {
    /// None.
    Plain,
    /// Adds `bias`, one element per column in the dtype of the result, to every row.
    Bias,
    /// [`Bias`](Self::Bias), then GELU in its `tanh` form. With `aux`, the pre-activation is written to the operand
    /// `aux`, which has the layout of the result.
    BiasGelu {
        /// True if the pre-activation is written.
        aux: bool,
    },
}

/// Device addresses of the operands of a matmul. Operands that its [`MatMulEpilogue`] does not use are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatMulOperands {
    /// Left input.
    pub a: u64,
    /// Right input.
    pub b: u64,
    /// Result.
    pub c: u64,
    /// Bias.
    pub bias: u64,
    /// Pre-activation.
    pub aux: u64,
}

impl MatMulOperands {
    /// Returns the operands of a matmul without an epilogue.
    pub fn plain(a: u64, b: u64, c: u64) -> MatMulOperands {
        MatMulOperands { a, b, c, bias: 0, aux: 0 }
    }

    /// Required alignment of the operands of matmuls with an epilogue, in bytes.
    pub const ALIGNMENT: u64 = 16;
}

//! Matrix multiplication and its epilogues.

use crate::{DryRunBackend, View, ViewMut};

/// Matmul kernels.
pub trait MatmulOps {
    /// Computes a matmul; see [`Gemm`].
    ///
    /// `a` and `b` are of type `T`; `c` is of type `T` or f32. Sums are f32 in either case.
    fn gemm(&self, g: &Gemm, a: View, b: View, c: ViewMut);

    /// Computes one [`gemm`](Self::gemm) of a grouped GEMM. Its sizes change from call to call, as the number of an
    /// expert's rows does, so nothing is autotuned or kept for them.
    fn grouped_gemm(&self, g: &Gemm, a: View, b: View, c: ViewMut) {
        self.gemm(g, a, b, c);
    }

    /// Computes a matmul for each element of a batch; see [`BatchedGemm`]. Dtypes are those of [`gemm`](Self::gemm).
    fn batched_gemm(&self, g: &BatchedGemm, a: View, b: View, c: ViewMut);

    /// Returns true if matmuls can have [epilogues](Self::gemm_with_epilogue). Then it pays to defer a matmul until the
    /// use of its result is known.
    fn has_epilogues(&self) -> bool {
        false
    }
    /// Computes a [`gemm`](Self::gemm) and its epilogue in one kernel; results are rounded after the epilogue. Returns
    /// false, and does nothing, if the backend has no such kernel for these operands.
    fn gemm_with_epilogue(
        &self,
        _: &Gemm,
        _: View,
        _: View,
        _: GemmEpilogue<'_>,
        _: ViewMut,
    ) -> bool {
        false
    }
}

impl MatmulOps for DryRunBackend {
    fn gemm(&self, _: &Gemm, _: View, _: View, _: ViewMut) {}

    fn batched_gemm(&self, _: &BatchedGemm, _: View, _: View, _: ViewMut) {}

    fn has_epilogues(&self) -> bool {
        self.device().is_some()
    }

    fn gemm_with_epilogue(
        &self,
        _: &Gemm,
        _: View,
        _: View,
        _: GemmEpilogue<'_>,
        _: ViewMut,
    ) -> bool {
        self.has_epilogues()
    }
}

/// A matmul `c[m, n] (+)= op(a)[m, k] * op(b)[k, n]` of row-major contiguous operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gemm {
    /// Rows of `c`.
    pub m: usize,
    /// Columns of `c`.
    pub n: usize,
    /// Length of the contraction.
    pub k: usize,
    /// `a` is stored as `[k, m]`.
    pub trans_a: bool,
    /// `b` is stored as `[n, k]`.
    pub trans_b: bool,
    /// Add to `c` instead of overwriting it.
    pub accumulate: bool,
}

/// A matmul for each element of a batch, whose matrices are parts of larger operands: `c[i, j] (+)= op(a[i, j]) *
/// op(b[i, j])` for each `i` of the first loop and `j` of the second.
///
/// Elements of `c` that the matrices leave out are neither read nor written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BatchedGemm {
    /// Sizes, transposition and accumulation of each matmul.
    pub gemm: Gemm,
    /// Distance between the starts of consecutive rows of `a`, `b` and `c`, as they are stored: at least the length of
    /// a row.
    pub lead: [usize; 3],
    /// The loops over the batch, the outer first.
    pub batch: [BatchLoop; 2],
}

/// One loop over the batch of a [`BatchedGemm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BatchLoop {
    /// Number of elements.
    pub count: usize,
    /// Distance between the matrices of consecutive elements in `a`, `b` and `c`.
    pub strides: [usize; 3],
}

impl BatchLoop {
    /// A loop over one element.
    pub const ONE: BatchLoop = BatchLoop { count: 1, strides: [0; 3] };
}

impl BatchedGemm {
    /// Returns the number of matmuls.
    pub fn count(&self) -> usize {
        self.batch[0].count * self.batch[1].count
    }

    /// Returns the floating-point operations, two per multiply-add.
    pub fn flops(&self) -> u64 {
        let Gemm { m, n, k, .. } = self.gemm;
        2 * self.count() as u64 * m as u64 * n as u64 * k as u64
    }

    /// Returns rows and columns of the matrices of `a`, `b` and `c`, as they are stored.
    pub fn stored(&self) -> [[usize; 2]; 3] {
        let Gemm { m, n, k, trans_a, trans_b, .. } = self.gemm;
        let a = if trans_a { [k, m] } else { [m, k] };
        let b = if trans_b { [n, k] } else { [k, n] };
        [a, b, [m, n]]
    }

    /// Returns the number of elements of one matrix of `a`, `b` and `c`, from its first element to its last.
    pub fn spans(&self) -> [usize; 3] {
        let stored = self.stored();
        std::array::from_fn(|operand| match stored[operand] {
            [0, _] | [_, 0] => 0,
            [rows, cols] => (rows - 1) * self.lead[operand] + cols,
        })
    }

    /// Returns the number of elements of `a`, `b` and `c` up to the last one that is used.
    pub fn ends(&self) -> [usize; 3] {
        let spans = self.spans();
        let last = |operand: usize| -> usize {
            self.batch.iter().map(|batch| (batch.count - 1) * batch.strides[operand]).sum()
        };
        std::array::from_fn(|operand| last(operand) + spans[operand])
    }

    /// Checks sizes and operands, which may be longer than what is used of them.
    ///
    /// # Panics
    /// If a size is 0, a matrix lies outside of its operand, or rows or matrices of `c` overlap.
    #[track_caller]
    pub fn check(&self, lens: [usize; 3]) {
        let Gemm { m, n, k, .. } = self.gemm;
        assert!(m * n * k * self.count() > 0, "each matmul adds up products: {self:?}");
        let fits = self.ends().iter().zip(lens).all(|(end, len)| *end <= len);
        assert!(fits, "matrices lie inside of operands of {lens:?} elements: {self:?}");
        let stored = self.stored();
        let is_apart = |operand: usize| {
            let [rows, cols] = stored[operand];
            rows == 1 || self.lead[operand] >= cols
        };
        assert!((0..3).all(is_apart), "rows do not overlap: {self:?}");
        let has_result = |batch: &BatchLoop| batch.count == 1 || batch.strides[2] > 0;
        assert!(self.batch.iter().all(has_result), "each matmul has a result of its own: {self:?}");
    }
}

/// The epilogue of a matmul. Its operands have the dtype of the result.
pub enum GemmEpilogue<'a> {
    /// Adds a bias `[n]` to each row.
    Bias(View<'a>),
    /// Adds a bias `[n]` to each row, and applies GELU in its `tanh` form.
    BiasGelu {
        /// The bias.
        bias: View<'a>,
        /// The pre-activation (the input of GELU), `[m, n]`, written if present.
        pre_activation: Option<ViewMut<'a>>,
    },
}

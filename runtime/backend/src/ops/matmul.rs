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

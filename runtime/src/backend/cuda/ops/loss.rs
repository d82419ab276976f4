//! The pieces of a cross-entropy whose vocabulary may be cut over ranks.

use crate::backend::cuda::gpu::args;
use crate::backend::cuda::kernels::LOSS;
use crate::backend::cuda::{Gpu, Grid};
use crate::backend::{DType, View, ViewMut};

use super::launch::{at, float_name, wide};
use super::rows::RowPlan;

/// Longest row that is the work of one warp.
const WARP_COLS: usize = 1024;
/// Vectors of 128 bits for each thread of a block, unless that takes more threads than there can be.
const VECTORS: usize = 2;

/// See [`Backend::row_max`](crate::backend::Backend::row_max).
pub fn row_max(gpu: &Gpu, cols: usize, x: View, max: ViewMut) {
    let max = max.as_view();
    let rows = Rows::new(cols, x);
    rows.check_floats("row_max", [max]);
    // SAFETY: `x` has these rows, and `max` an element for each.
    unsafe {
        rows.launch(
            gpu,
            &format!("row_max_{}", float_name(x.dtype())),
            args![rows.plan.lanes, at(x), rows.count(), cols as u64, at(max)],
        )
    };
}

/// See [`Backend::exp_sum`](crate::backend::Backend::exp_sum).
#[allow(clippy::too_many_arguments)]
pub fn exp_sum(
    gpu: &Gpu,
    cols: usize,
    logits: View,
    max: View,
    targets: View,
    first_col: usize,
    sum_exp: ViewMut,
    target_logit: ViewMut,
) {
    let [sum_exp, target_logit] = [sum_exp.as_view(), target_logit.as_view()];
    let rows = Rows::new(cols, logits);
    rows.check_targets(targets);
    rows.check_floats("exp_sum", [max, sum_exp, target_logit]);
    // SAFETY: `logits` has these rows, and every other operand an element for each.
    unsafe {
        rows.launch(
            gpu,
            &format!("exp_sum_{}", float_name(logits.dtype())),
            args![
                rows.plan.lanes,
                at(logits),
                rows.count(),
                cols as u64,
                at(max),
                at(targets),
                first_col as u64,
                at(sum_exp),
                at(target_logit)
            ],
        )
    };
}

/// [`row_max`] and [`exp_sum`] in one pass over `logits[rows, cols]`: what a rank knows by itself of each row.
///
/// `max`, `sum_exp`, `target_logit`: f32, written; `sum_exp` is less this `max`. Ranks that share a vocabulary take the
/// largest `max`, multiply their sums by the exponential of what their own is less, and add them.
///
/// # Panics
/// When operands do not fit.
#[allow(clippy::too_many_arguments)]
pub fn max_exp_sum(
    gpu: &Gpu,
    cols: usize,
    logits: View,
    targets: View,
    first_col: usize,
    max: ViewMut,
    sum_exp: ViewMut,
    target_logit: ViewMut,
) {
    let [max, sum_exp, target_logit] = [&max, &sum_exp, &target_logit].map(ViewMut::as_view);
    let rows = Rows::new(cols, logits);
    rows.check_targets(targets);
    rows.check_floats("max_exp_sum", [max, sum_exp, target_logit]);
    // SAFETY: `logits` has these rows, and every other operand an element for each.
    unsafe {
        rows.launch(
            gpu,
            &format!("max_exp_sum_{}", float_name(logits.dtype())),
            args![
                rows.plan.lanes,
                at(logits),
                rows.count(),
                cols as u64,
                at(targets),
                first_col as u64,
                at(max),
                at(sum_exp),
                at(target_logit)
            ],
        )
    };
}

/// See [`Backend::cross_entropy_loss`](crate::backend::Backend::cross_entropy_loss).
pub fn cross_entropy_loss(
    gpu: &Gpu,
    max: View,
    sum_exp: View,
    target_logit: View,
    targets: View,
    sum: ViewMut,
) {
    let sum = sum.as_view();
    let rows = targets.len();
    let fits = |view: &View| view.len() == rows && view.dtype() == DType::F32;
    assert!(
        [max, sum_exp, target_logit].iter().all(fits) && targets.dtype() == DType::U32,
        "cross_entropy_loss: statistics (f32) and a target (u32) for each of {rows} rows"
    );
    assert!(sum.len() == 1 && sum.dtype() == DType::F32, "cross_entropy_loss: one sum in f32");
    // One block, in which the order of the sum is that of its threads.
    let grid = Grid { blocks: [1, 1, 1], threads: 1024, shared: 0 };
    // SAFETY: every operand has an element for each row, and there is room for the sum.
    unsafe {
        gpu.launch(
            (&LOSS, "cross_entropy_loss"),
            grid,
            args![at(max), at(sum_exp), at(target_logit), at(targets), rows as u64, at(sum)],
        );
    }
}

/// See [`Backend::cross_entropy_grad`](crate::backend::Backend::cross_entropy_grad).
#[allow(clippy::too_many_arguments)]
pub fn cross_entropy_grad(
    gpu: &Gpu,
    cols: usize,
    logits: ViewMut,
    max: View,
    sum_exp: View,
    targets: View,
    first_col: usize,
    row_scale: View,
) {
    let logits = logits.as_view();
    gradient(gpu, cols, logits, [max, sum_exp, row_scale], targets, first_col, logits);
}

/// [`cross_entropy_grad`] that leaves the logits, and writes the gradient to `out`, of their dtype or of bf16.
///
/// # Panics
/// When operands do not fit.
#[allow(clippy::too_many_arguments)]
pub fn cross_entropy_grad_into(
    gpu: &Gpu,
    cols: usize,
    logits: View,
    max: View,
    sum_exp: View,
    targets: View,
    first_col: usize,
    row_scale: View,
    out: ViewMut,
) {
    let out = out.as_view();
    gradient(gpu, cols, logits, [max, sum_exp, row_scale], targets, first_col, out);
}

/// `floats` are the maxima, the sums and the scales.
fn gradient(
    gpu: &Gpu,
    cols: usize,
    logits: View,
    floats: [View; 3],
    targets: View,
    first_col: usize,
    out: View,
) {
    let rows = Rows::new(cols, logits);
    rows.check_targets(targets);
    rows.check_floats("cross_entropy_grad", floats);
    assert_eq!(logits.len(), out.len(), "every logit has a gradient");
    let dtypes = [logits.dtype(), out.dtype()].map(float_name);
    assert_ne!(dtypes, ["bf16", "f32"], "a gradient has the dtype of the logits, or bf16");
    let name = format!("cross_entropy_grad_{}_{}", dtypes[0], dtypes[1]);
    let [max, sum_exp, row_scale] = floats.map(at);
    // SAFETY: both matrices have these rows, and every other operand an element for each.
    unsafe {
        rows.launch(
            gpu,
            &name,
            args![
                rows.plan.lanes,
                at(logits),
                at(out),
                rows.count(),
                cols as u64,
                max,
                sum_exp,
                at(targets),
                first_col as u64,
                row_scale
            ],
        )
    };
}

/// Rows of logits, which may begin anywhere.
struct Rows {
    count: usize,
    plan: RowPlan,
}

impl Rows {
    fn new(cols: usize, matrix: View) -> Rows {
        let len = matrix.len();
        assert!(cols > 0 && len.is_multiple_of(cols), "{len} elements are whole rows of {cols}");
        let vectors = cols / wide(matrix.dtype());
        let lanes = match cols {
            ..=WARP_COLS => 32,
            _ => (vectors / VECTORS).next_power_of_two().clamp(128, 1024) as u32,
        };
        Rows { count: len / cols, plan: RowPlan::of_lanes("", lanes) }
    }

    fn count(&self) -> u64 {
        self.count as u64
    }

    fn check_floats<const N: usize>(&self, what: &str, of_rows: [View; N]) {
        for view in of_rows {
            let fits = view.len() == self.count && view.dtype() == DType::F32;
            assert!(fits, "{what}: one f32 for each of {} rows", self.count);
        }
    }

    fn check_targets(&self, targets: View) {
        let fits = targets.len() == self.count && targets.dtype() == DType::U32;
        assert!(fits, "one target (u32) for each of {} rows", self.count);
    }

    /// Launches a kernel for these rows.
    ///
    /// # Safety
    /// As [`Gpu::launch`].
    unsafe fn launch(&self, gpu: &Gpu, name: &str, args: &[&[u8]]) {
        // SAFETY: as the caller promises.
        unsafe { gpu.launch((&LOSS, name), self.plan.grid(gpu, self.count), args) };
    }
}

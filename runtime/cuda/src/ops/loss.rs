//! Cross-entropy, in pieces for a vocabulary that is split over ranks.

use crate::gpu::args;
use crate::kernels::LOSS;
use crate::{CudaBackend, GpuContext, Grid};
use meshwright_backend::ops::loss::{
    CrossEntropyArgs, CrossEntropyGradArgs, CrossEntropyLossArgs, ExpSumArgs, MaxExpSumArgs,
};
use meshwright_backend::{DType, LossOps, View, ViewMut};

use super::launch::{address, float_name, vector_width};
use super::rows::RowPlan;

/// Maximum columns of a row per warp.
const WARP_COLS: usize = 1024;
/// Vectors of 128 bits per thread of a block, unless that exceeds the maximum threads.
const VECTORS: usize = 2;
/// Maximum threads for a row that two blocks of a multiprocessor can keep in shared memory: at their register use,
/// there is only one block of 1024.
const SHORT_LANES: usize = 512;
/// Maximum bytes of such a row.
const MOST_KEPT: usize = 112 << 10;
/// Maximum threads for a longer row. For the gradient it is read a second time, from the L2 cache if the rows of all
/// blocks fit there: one block of 1024 has as many loads in flight as two of 512, and half as many rows.
const LONG_LANES: usize = 1024;
/// Bytes of shared memory of a block in addition to the row: for reductions over its warps of two kinds, twice each.
const STATIC_SHARED: usize = 2 * 2 * 128;
/// Maximum threads of a block that only writes gradients, which do not depend on it: at their register use, two blocks
/// of 512 fit on a multiprocessor, while one of 1024 would leave half of it idle.
const GRADIENT_LANES: usize = 512;

impl LossOps for CudaBackend {
    fn row_max(&self, cols: usize, x: View, max: ViewMut) {
        let max = max.as_view();
        let rows = LossRows::new(cols, x);
        rows.check_floats("row_max", [max]);
        // SAFETY: `max` has an element for each row.
        unsafe { rows.launch_rows(self.gpu(), "row_max", &[address(max)]) };
    }

    fn exp_sum(&self, args: ExpSumArgs) {
        let ExpSumArgs { cols, logits, max, targets, first_col, sum_exp, target_logit } = args;
        let [sum_exp, target_logit] = [sum_exp.as_view(), target_logit.as_view()];
        let rows = LossRows::new(cols, logits);
        rows.check_targets(targets);
        rows.check_floats("exp_sum", [max, sum_exp, target_logit]);
        let operands = [
            address(max),
            address(targets),
            first_col as u64,
            address(sum_exp),
            address(target_logit),
        ];
        // SAFETY: every operand has an element for each row.
        unsafe { rows.launch_rows(self.gpu(), "exp_sum", &operands) };
    }

    /// Computes all statistics in one pass over the logits.
    fn max_exp_sum(&self, args: MaxExpSumArgs) {
        let MaxExpSumArgs { cols, logits, targets, first_col, max, sum_exp, target_logit } = args;
        let [max, sum_exp, target_logit] = [&max, &sum_exp, &target_logit].map(ViewMut::as_view);
        let rows = LossRows::new(cols, logits);
        rows.check_targets(targets);
        rows.check_floats("max_exp_sum", [max, sum_exp, target_logit]);
        let operands = [
            address(targets),
            first_col as u64,
            address(max),
            address(sum_exp),
            address(target_logit),
        ];
        // SAFETY: every operand has an element for each row.
        unsafe { rows.launch_rows(self.gpu(), "max_exp_sum", &operands) };
    }

    fn cross_entropy_loss(&self, args: CrossEntropyLossArgs) {
        let gpu = self.gpu();
        let CrossEntropyLossArgs { max, sum_exp, target_logit, targets, sum } = args;
        let sum = sum.as_view();
        let rows = targets.len();
        let fits = |view: &View| view.len() == rows && view.dtype() == DType::F32;
        assert!(
            [max, sum_exp, target_logit].iter().all(fits) && targets.dtype() == DType::U32,
            "cross_entropy_loss: statistics (f32) and a target (u32) for each of {rows} rows"
        );
        assert!(sum.len() == 1 && sum.dtype() == DType::F32, "cross_entropy_loss: one sum in f32");
        // One block, so that the order of the sum is fixed.
        let grid = Grid { blocks: [1, 1, 1], threads: 1024, shared: 0 };
        // SAFETY: every operand has an element for each row, and there is room for the sum.
        unsafe {
            gpu.launch(
                (&LOSS, "cross_entropy_loss"),
                grid,
                args![
                    address(max),
                    address(sum_exp),
                    address(target_logit),
                    address(targets),
                    rows as u64,
                    address(sum)
                ],
            );
        }
    }

    fn cross_entropy_grad(&self, args: CrossEntropyGradArgs) {
        let CrossEntropyGradArgs { cols, logits, max, sum_exp, targets, first_col, row_scale } =
            args;
        let rows = LossRows::with_lanes(cols, logits.as_view(), GRADIENT_LANES);
        rows.check_targets(targets);
        rows.check_floats("cross_entropy_grad", [max, sum_exp, row_scale]);
        let operands = [
            address(max),
            address(sum_exp),
            address(targets),
            first_col as u64,
            address(row_scale),
        ];
        // SAFETY: every operand has an element for each row, and the logits are exclusive.
        unsafe { rows.launch_rows(self.gpu(), "cross_entropy_grad", &operands) };
    }

    /// Runs as one kernel, which reads each row of logits from memory once and writes it once.
    fn cross_entropy(&self, args: CrossEntropyArgs) {
        let gpu = self.gpu();
        let CrossEntropyArgs { cols, logits, targets, first_col, row_scale, .. } = args;
        let CrossEntropyArgs { max, sum_exp, target_logit, .. } = args;
        let [logits, max, sum_exp, target_logit] =
            [&logits, &max, &sum_exp, &target_logit].map(ViewMut::as_view);
        let rows = LossRows::new(cols, logits);
        rows.check_targets(targets);
        rows.check_floats("cross_entropy", [row_scale, max, sum_exp, target_logit]);
        let operands = [
            address(targets),
            first_col as u64,
            address(row_scale),
            address(max),
            address(sum_exp),
            address(target_logit),
        ];
        let shared = rows.kept_bytes(gpu);
        let kernel = if shared > 0 { "cross_entropy_kept" } else { "cross_entropy" };
        // SAFETY: every operand has an element for each row, and the logits are exclusive; shared memory has room for a
        // row.
        unsafe { rows.launch_with_shared(gpu, kernel, shared, &operands) };
    }
}

/// Rows of logits of any alignment.
struct LossRows<'a> {
    matrix: View<'a>,
    count: usize,
    cols: usize,
    plan: RowPlan,
}

impl<'a> LossRows<'a> {
    /// Creates the plan of sums over rows, whose order depends on their length and dtype alone.
    fn new(cols: usize, matrix: View<'a>) -> LossRows<'a> {
        let is_short = cols * matrix.dtype().bytes() <= MOST_KEPT;
        LossRows::with_lanes(cols, matrix, if is_short { SHORT_LANES } else { LONG_LANES })
    }

    fn with_lanes(cols: usize, matrix: View<'a>, most: usize) -> LossRows<'a> {
        let len = matrix.len();
        assert!(cols > 0 && len.is_multiple_of(cols), "{len} elements are whole rows of {cols}");
        let vectors = cols / vector_width(matrix.dtype());
        let lanes = match cols {
            ..=WARP_COLS => 32,
            _ => (vectors / VECTORS).next_power_of_two().clamp(128, most) as u32,
        };
        LossRows { matrix, count: len / cols, cols, plan: RowPlan::of_lanes("", lanes) }
    }

    /// Returns the shared memory for a block's row, at any alignment in 16 bytes; 0 for rows of warps, and if a
    /// multiprocessor cannot hold two of them, so that one block loads while the other computes.
    fn kept_bytes(&self, gpu: &GpuContext) -> u32 {
        /// Bytes of shared memory that the device reserves per block.
        const RESERVED: usize = 1024;
        let row = self.cols * self.matrix.dtype().bytes();
        let bytes = row.next_multiple_of(16) + 16;
        let most = gpu.driver().properties().shared_memory + RESERVED;
        let is_kept = self.plan.lanes > 32
            && row <= MOST_KEPT
            && 2 * (bytes + STATIC_SHARED + RESERVED) <= most;
        if is_kept { bytes as u32 } else { 0 }
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

    /// Launches the kernel of this name, for the dtype of the matrix: its parameters are lanes per row, the matrix,
    /// rows and columns, then `operands`, addresses and numbers.
    ///
    /// # Safety
    /// As [`GpuContext::launch`], for the operands.
    unsafe fn launch_rows(&self, gpu: &GpuContext, kernel: &str, operands: &[u64]) {
        // SAFETY: as the caller promises.
        unsafe { self.launch_with_shared(gpu, kernel, 0, operands) };
    }

    /// Launches like [`launch_rows`](Self::launch_rows), with dynamic shared memory per block, in bytes.
    ///
    /// # Safety
    /// As [`launch_rows`](Self::launch_rows); the kernel uses no more shared memory.
    unsafe fn launch_with_shared(
        &self,
        gpu: &GpuContext,
        kernel: &str,
        shared: u32,
        operands: &[u64],
    ) {
        let name = format!("{kernel}_{}", float_name(self.matrix.dtype()));
        let grid = Grid { shared, ..self.plan.grid(gpu, self.count) };
        let matrix = [address(self.matrix), self.count as u64, self.cols as u64];
        let numbers = matrix.iter().chain(operands).map(bytemuck::bytes_of);
        let args: Vec<&[u8]> =
            [bytemuck::bytes_of(&self.plan.lanes)].into_iter().chain(numbers).collect();
        // SAFETY: the matrix has these rows, and the caller promises the rest.
        unsafe { gpu.launch((&LOSS, &name), grid, &args) };
    }
}

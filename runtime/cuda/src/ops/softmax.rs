//! Softmax over rows.

use super::launch::{address, float_name};
use super::rows::{RowKernel, RowPlan};
use crate::CudaBackend;
use crate::gpu::args;
use crate::kernels::SOFTMAX;
use meshwright_backend::{SoftmaxOps, View, ViewMut};

/// Kernels for rows of vectors, as in `kernels/softmax.cu`.
const FORWARD: [RowKernel; 1] = [RowKernel::new("", 4)];
const BACKWARD: [RowKernel; 1] = [RowKernel::new("", 2)];

impl SoftmaxOps for CudaBackend {
    fn softmax(&self, cols: usize, x: View, y: ViewMut) {
        let gpu = self.gpu();
        let y = y.as_view();
        let rows = row_count(cols, [x, y]);
        let plan = RowPlan::new(x.dtype(), cols, &[x, y], &FORWARD);
        let name = format!("softmax_{}{}", plan.form, float_name(x.dtype()));
        // SAFETY: the views have `rows * cols` elements of the dtype in the name, and the alignment of the plan.
        unsafe {
            gpu.launch(
                (&SOFTMAX, &name),
                plan.grid(gpu, rows),
                args![address(x), address(y), rows as u64, cols as u64, plan.lanes],
            )
        };
    }

    fn softmax_backward(&self, cols: usize, y: View, dy: View, dx: ViewMut) {
        let gpu = self.gpu();
        let dx = dx.as_view();
        let rows = row_count(cols, [y, dy, dx]);
        let plan = RowPlan::new(y.dtype(), cols, &[y, dy, dx], &BACKWARD);
        let name = format!("softmax_backward_{}{}", plan.form, float_name(y.dtype()));
        // SAFETY: as in `softmax`.
        unsafe {
            gpu.launch(
                (&SOFTMAX, &name),
                plan.grid(gpu, rows),
                args![address(y), address(dy), address(dx), rows as u64, cols as u64, plan.lanes],
            )
        };
    }
}

/// Returns the number of rows of `cols` elements; checks that all operands have it.
fn row_count<const N: usize>(cols: usize, operands: [View; N]) -> usize {
    let len = operands[0].len();
    for operand in operands {
        assert_eq!(operand.len(), len, "softmax: operands of one size");
        assert_eq!(operand.dtype(), operands[0].dtype(), "softmax: operands of one dtype");
    }
    assert!(cols > 0 && len.is_multiple_of(cols), "{len} elements are whole rows of {cols}");
    len / cols
}

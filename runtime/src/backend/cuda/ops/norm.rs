//! RMSNorm and LayerNorm over rows.

use super::launch::{at, float_name};
use super::partials::add_partials;
use super::rows::RowPlan;
use crate::backend::cuda::Gpu;
use crate::backend::cuda::gpu::args;
use crate::backend::cuda::kernels::NORM;
use crate::backend::{DType, LeafGrad, View, ViewMut};

/// Vectors that a lane keeps of a row, and the most threads of a block, as in `kernels/norm.cu`.
const KEPT: usize = 4;
const KEPT_BACKWARD: usize = 2;
const MOST_THREADS: u32 = 512;

pub fn rms_norm(gpu: &Gpu, x: View, weight: View, eps: f32, y: ViewMut, inv_rms: ViewMut) {
    forward(gpu, x, None, weight, None, eps, y, None, inv_rms);
}

/// Writes `x + residual` to `sum`, rounded, and the RMSNorm of that to `y`, in one pass over memory: `sum`, `y` and
/// `inv_rms` are those of an addition and of [`Backend::rms_norm`](crate::backend::Backend::rms_norm).
#[allow(clippy::too_many_arguments)]
pub fn residual_rms_norm(
    gpu: &Gpu,
    x: View,
    residual: View,
    weight: View,
    eps: f32,
    sum: ViewMut,
    y: ViewMut,
    inv_rms: ViewMut,
) {
    forward(gpu, x, Some((residual, sum)), weight, None, eps, y, None, inv_rms);
}

#[allow(clippy::too_many_arguments)]
pub fn layer_norm(
    gpu: &Gpu,
    x: View,
    weight: View,
    bias: View,
    eps: f32,
    y: ViewMut,
    mean: ViewMut,
    inv_std: ViewMut,
) {
    forward(gpu, x, None, weight, Some(bias), eps, y, Some(mean), inv_std);
}

/// Writes `x + residual` to `sum`, rounded, and the LayerNorm of that to `y`, in one pass over memory: `sum`, `y`, `mean`
/// and `inv_std` are those of an addition and of [`Backend::layer_norm`](crate::backend::Backend::layer_norm).
#[allow(clippy::too_many_arguments)]
pub fn residual_layer_norm(
    gpu: &Gpu,
    x: View,
    residual: View,
    weight: View,
    bias: View,
    eps: f32,
    sum: ViewMut,
    y: ViewMut,
    mean: ViewMut,
    inv_std: ViewMut,
) {
    forward(gpu, x, Some((residual, sum)), weight, Some(bias), eps, y, Some(mean), inv_std);
}

/// LayerNorm with a bias and a mean, else RMSNorm; with a residual and where the sum goes, or without.
#[allow(clippy::too_many_arguments)]
fn forward(
    gpu: &Gpu,
    x: View,
    residual: Option<(View, ViewMut)>,
    weight: View,
    bias: Option<View>,
    eps: f32,
    y: ViewMut,
    mean: Option<ViewMut>,
    inv_std: ViewMut,
) {
    let (rows, cols) = (inv_std.len(), weight.len());
    let (added, sum) = match &residual {
        Some((added, sum)) => (*added, sum.as_view()),
        None => (x, x),
    };
    let (bias, mean) = (bias.unwrap_or(weight), mean.as_ref().map(ViewMut::as_view));
    let operands = [x, added, sum, y.as_view()];
    check_operands(rows, cols, &operands, &[weight, bias]);
    check_statistics(rows, &[mean.unwrap_or(inv_std.as_view()), inv_std.as_view()]);

    let plan = RowPlan::new(
        x.dtype(),
        cols,
        &[x, added, sum, y.as_view(), weight, bias],
        KEPT,
        MOST_THREADS,
    );
    let [added, sum] = if residual.is_some() { [at(added), at(sum)] } else { [0; 2] };
    let (grid, kind) = (plan.grid(gpu, rows), plan.form);
    let dtype = float_name(x.dtype());
    let [row_count, col_count] = [rows, cols].map(|n| n as u64);
    let [x, weight, bias, y] = [at(x), at(weight), at(bias), at(y.as_view())];
    let inv_std = at(inv_std.as_view());
    let lanes = plan.lanes;
    match mean {
        None => {
            let name = format!("rms_norm_{kind}{dtype}");
            let args = args![x, added, sum, weight, eps, y, inv_std, row_count, col_count, lanes];
            // SAFETY: the operands have the sizes that were checked, and the alignment of the plan.
            unsafe { gpu.launch((&NORM, &name), grid, args) };
        }
        Some(mean) => {
            let name = format!("layer_norm_{kind}{dtype}");
            let mean = at(mean);
            let args = args![
                x, added, sum, weight, bias, eps, y, mean, inv_std, row_count, col_count, lanes
            ];
            // SAFETY: as above.
            unsafe { gpu.launch((&NORM, &name), grid, args) };
        }
    }
}

pub fn rms_norm_backward(
    gpu: &Gpu,
    x: View,
    weight: View,
    inv_rms: View,
    dy: View,
    dx: LeafGrad,
    dweight: Option<LeafGrad>,
) {
    backward(gpu, x, weight, None, inv_rms, dy, dx, dweight, None);
}

#[allow(clippy::too_many_arguments)]
pub fn layer_norm_backward(
    gpu: &Gpu,
    x: View,
    weight: View,
    mean: View,
    inv_std: View,
    dy: View,
    dx: LeafGrad,
    dweight: Option<LeafGrad>,
    dbias: Option<LeafGrad>,
) {
    backward(gpu, x, weight, Some(mean), inv_std, dy, dx, dweight, dbias);
}

/// Of LayerNorm with a mean, else of RMSNorm.
#[allow(clippy::too_many_arguments)]
fn backward(
    gpu: &Gpu,
    x: View,
    weight: View,
    mean: Option<View>,
    inv_std: View,
    dy: View,
    dx: LeafGrad,
    dweight: Option<LeafGrad>,
    dbias: Option<LeafGrad>,
) {
    let LeafGrad { view: dx, accumulate } = dx;
    let (rows, cols) = (inv_std.len(), weight.len());
    check_operands(rows, cols, &[x, dy, dx.as_view()], &[weight]);
    check_statistics(rows, &[mean.unwrap_or(inv_std), inv_std]);
    let wanted = [dweight.is_some(), dbias.is_some()];
    let sums: Vec<LeafGrad> = [dweight, dbias].into_iter().flatten().collect();
    for sums in &sums {
        assert_eq!(sums.view.len(), cols, "norm: gradients of {cols} parameters");
    }
    if rows == 0 || cols == 0 {
        let written = sums.into_iter().filter(|sums| !sums.accumulate);
        return written.for_each(|mut sums| sums.view.clear());
    }

    let operands = &[x, weight, dy, dx.as_view()];
    let plan = RowPlan::new(x.dtype(), cols, operands, KEPT_BACKWARD, MOST_THREADS);
    let (grid, groups) = plan.summing_grid(rows);
    let bytes = groups as usize * cols * DType::F32.bytes();
    let parts = gpu.workspace(bytes * sums.len());
    let weight_parts = if wanted[0] { parts } else { 0 };
    let bias_parts = match wanted {
        [_, false] => 0,
        [false, true] => parts,
        [true, true] => parts + bytes as u64,
    };

    let (kind, dtype, lanes) = (plan.form, float_name(x.dtype()), plan.lanes);
    let [row_count, col_count] = [rows, cols].map(|n| n as u64);
    let [x, weight, inv_std, dy, dx] = [at(x), at(weight), at(inv_std), at(dy), at(dx.as_view())];
    let add = u32::from(accumulate);
    match mean {
        None => {
            let name = format!("rms_norm_backward_{kind}{dtype}");
            let args =
                args![x, weight, inv_std, dy, dx, add, weight_parts, row_count, col_count, lanes];
            // SAFETY: the operands have the sizes that were checked, and the alignment of the plan; a row of partial sums is
            // there for each group.
            unsafe { gpu.launch((&NORM, &name), grid, args) };
        }
        Some(mean) => {
            let name = format!("layer_norm_backward_{kind}{dtype}");
            let mean = at(mean);
            let args = args![
                x,
                weight,
                mean,
                inv_std,
                dy,
                dx,
                add,
                weight_parts,
                bias_parts,
                row_count,
                col_count,
                lanes
            ];
            // SAFETY: as above.
            unsafe { gpu.launch((&NORM, &name), grid, args) };
        }
    }
    // SAFETY: the kernel before this one has written a row for each group, of each of the sums.
    unsafe { add_partials(gpu, sums, parts, groups) };
}

fn check_operands(rows: usize, cols: usize, operands: &[View], parameters: &[View]) {
    let dtype = operands[0].dtype();
    for operand in operands {
        assert_eq!(operand.len(), rows * cols, "norm: {rows} rows of {cols}");
        assert_eq!(operand.dtype(), dtype, "norm: operands of one dtype");
    }
    for parameters in parameters {
        assert_eq!(parameters.len(), cols, "norm: {cols} parameters");
        assert_eq!(parameters.dtype(), dtype, "norm: operands of one dtype");
    }
}

fn check_statistics(rows: usize, statistics: &[View]) {
    for statistic in statistics {
        assert_eq!(statistic.len(), rows, "norm: statistics of {rows} rows");
        assert_eq!(statistic.dtype(), DType::F32, "norm: statistics are f32");
    }
}

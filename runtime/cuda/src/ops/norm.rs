//! RMSNorm and LayerNorm over rows.

use super::launch::{address, float_name};
use super::partials::add_partials;
use super::rows::{RowKernel, RowPlan};
use crate::gpu::args;
use crate::kernels::NORM;
use crate::{CudaBackend, GpuContext};
use meshwright_backend::ops::norm::{
    GainAndGradient, LayerNormArgs, LayerNormBackwardArgs, RmsNormArgs, RmsNormBackwardArgs,
    RmsNormSumsArgs, RowSums,
};
use meshwright_backend::{DType, LeafGrad, NormOps, ResidualSum, View, ViewMut};

/// Kernels for rows of vectors, as in `kernels/norm.cu`.
const FORWARD: [RowKernel; 1] = [RowKernel::new("", 4)];
const BACKWARD: [RowKernel; 2] = [
    RowKernel::new("", 2),
    // For rows of 768 elements, for example: the other kernel would have a quarter of its lanes idle.
    RowKernel {
        most_lanes: 128,
        warp_threads: 128,
        resident: 3 << 14,
        ..RowKernel::new("triple_", 3)
    },
];

impl NormOps for CudaBackend {
    fn rms_norm(&self, args: RmsNormArgs) {
        let RmsNormArgs { x, residual, weight, offset, eps, squares, y, inv_rms } = args;
        let (bias, mean, inv_std) = (None, None, inv_rms);
        let args =
            NormForward { x, residual, weight, offset, bias, eps, squares, y, mean, inv_std };
        forward(self.gpu(), args);
    }

    fn rms_norm_backward(&self, args: RmsNormBackwardArgs) {
        let RmsNormBackwardArgs { x, weight, offset, inv_rms, dy, dots, dx, dweight } = args;
        let (mean, inv_std, dbias) = (None, inv_rms, None);
        let args = NormBackward { x, weight, offset, mean, inv_std, dy, dots, dx, dweight, dbias };
        backward(self.gpu(), args);
    }

    fn rms_norm_sums(&self, args: RmsNormSumsArgs) {
        row_sums(self.gpu(), args);
    }

    fn layer_norm(&self, args: LayerNormArgs) {
        let LayerNormArgs { x, residual, weight, bias, eps, y, mean, inv_std } = args;
        let (bias, mean, offset, squares) = (Some(bias), Some(mean), 0.0, None);
        let args =
            NormForward { x, residual, weight, offset, bias, eps, squares, y, mean, inv_std };
        forward(self.gpu(), args);
    }

    fn layer_norm_backward(&self, args: LayerNormBackwardArgs) {
        let LayerNormBackwardArgs { x, weight, mean, inv_std, dy, dx, dweight, dbias } = args;
        let (mean, offset, dots) = (Some(mean), 0.0, None);
        let args = NormBackward { x, weight, offset, mean, inv_std, dy, dots, dx, dweight, dbias };
        backward(self.gpu(), args);
    }
}

/// Operands of both norms: LayerNorm has a bias and a mean, RMSNorm an offset instead.
struct NormForward<'a> {
    x: View<'a>,
    residual: Option<ResidualSum<'a>>,
    weight: View<'a>,
    offset: f32,
    bias: Option<View<'a>>,
    eps: f32,
    squares: Option<RowSums<'a>>,
    y: ViewMut<'a>,
    mean: Option<ViewMut<'a>>,
    inv_std: ViewMut<'a>,
}

/// Adds the residual and computes the norm of the rounded sum in one pass over memory.
fn forward(gpu: &GpuContext, args: NormForward) {
    let NormForward { x, residual, weight, offset, bias, eps, squares, y, mean, inv_std } = args;
    let (rows, cols) = (inv_std.len(), weight.len());
    let (added, sum) = match &residual {
        Some(ResidualSum { term, sum }) => (*term, sum.as_view()),
        None => (x, x),
    };
    let (bias, mean) = (bias.unwrap_or(weight), mean.as_ref().map(ViewMut::as_view));
    let operands = [x, added, sum, y.as_view()];
    check_operands(rows, cols, &operands, &[weight, bias]);
    check_statistics(rows, &[mean.unwrap_or(inv_std.as_view()), inv_std.as_view()]);

    let operands = &[x, added, sum, y.as_view(), weight, bias];
    let plan = RowPlan::new(x.dtype(), cols, operands, &FORWARD);
    let [added, sum] = if residual.is_some() { [address(added), address(sum)] } else { [0; 2] };
    let (grid, kind) = (plan.grid(gpu, rows), plan.form);
    let dtype = float_name(x.dtype());
    let [row_count, col_count] = [rows, cols].map(|n| n as u64);
    let [x, weight, bias, y] = [address(x), address(weight), address(bias), address(y.as_view())];
    let inv_std = address(inv_std.as_view());
    let lanes = plan.lanes;
    match mean {
        None if squares.is_some() => {
            let name = format!("rms_norm_of_sums_{kind}{dtype}");
            let (squares, total) = sums_of_rows(squares, rows);
            let args = args![
                x, added, sum, weight, offset, eps, squares, total, y, inv_std, row_count,
                col_count, lanes
            ];
            // SAFETY: as below.
            unsafe { gpu.launch((&NORM, &name), grid, args) };
        }
        None => {
            let name = format!("rms_norm_{kind}{dtype}");
            let args =
                args![x, added, sum, weight, offset, eps, y, inv_std, row_count, col_count, lanes];
            // SAFETY: the operands have the sizes that were checked, and the alignment of the plan.
            unsafe { gpu.launch((&NORM, &name), grid, args) };
        }
        Some(mean) => {
            let name = format!("layer_norm_{kind}{dtype}");
            let mean = address(mean);
            let args = args![
                x, added, sum, weight, bias, eps, y, mean, inv_std, row_count, col_count, lanes
            ];
            // SAFETY: as above.
            unsafe { gpu.launch((&NORM, &name), grid, args) };
        }
    }
}

/// Operands of the backward of both norms: LayerNorm has means, RMSNorm an offset instead.
struct NormBackward<'a> {
    x: View<'a>,
    weight: View<'a>,
    offset: f32,
    mean: Option<View<'a>>,
    inv_std: View<'a>,
    dy: View<'a>,
    dots: Option<RowSums<'a>>,
    dx: LeafGrad<'a>,
    dweight: Option<LeafGrad<'a>>,
    dbias: Option<LeafGrad<'a>>,
}

fn backward(gpu: &GpuContext, args: NormBackward) {
    let NormBackward { x, weight, offset, mean, inv_std, dy, dots, dx, dweight, dbias } = args;
    let LeafGrad { view: dx, accumulate } = dx;
    let (rows, cols) = (inv_std.len(), weight.len());
    check_operands(rows, cols, &[x, dy, dx.as_view()], &[weight]);
    check_statistics(rows, &[mean.unwrap_or(inv_std), inv_std]);
    let requested = [dweight.is_some(), dbias.is_some()];
    let sums: Vec<LeafGrad> = [dweight, dbias].into_iter().flatten().collect();
    for sums in &sums {
        assert_eq!(sums.view.len(), cols, "norm: gradients of {cols} parameters");
    }
    if rows == 0 || cols == 0 {
        let written = sums.into_iter().filter(|sums| !sums.accumulate);
        return written.for_each(|mut sums| sums.view.clear());
    }

    let operands = &[x, weight, dy, dx.as_view()];
    let plan = RowPlan::new(x.dtype(), cols, operands, &BACKWARD);
    let (grid, part_count) = plan.summing_grid(rows);
    let bytes = part_count as usize * cols * DType::F32.bytes();
    let parts = gpu.workspace(bytes * sums.len());
    let weight_parts = if requested[0] { parts } else { 0 };
    let bias_parts = match requested {
        [_, false] => 0,
        [false, true] => parts,
        [true, true] => parts + bytes as u64,
    };

    let (kind, dtype, lanes) = (plan.form, float_name(x.dtype()), plan.lanes);
    let [row_count, col_count] = [rows, cols].map(|n| n as u64);
    let [x, weight, inv_std, dy, dx] =
        [address(x), address(weight), address(inv_std), address(dy), address(dx.as_view())];
    let add = u32::from(accumulate);
    match mean {
        None if dots.is_some() => {
            let name = format!("rms_norm_of_sums_backward_{kind}{dtype}");
            let (dots, total) = sums_of_rows(dots, rows);
            let args = args![
                x,
                weight,
                offset,
                inv_std,
                dots,
                total,
                dy,
                dx,
                add,
                weight_parts,
                row_count,
                col_count,
                lanes
            ];
            // SAFETY: as below.
            unsafe { gpu.launch((&NORM, &name), grid, args) };
        }
        None => {
            let name = format!("rms_norm_backward_{kind}{dtype}");
            let args = args![
                x,
                weight,
                offset,
                inv_std,
                dy,
                dx,
                add,
                weight_parts,
                row_count,
                col_count,
                lanes
            ];
            // SAFETY: the operands have the sizes that were checked, and the alignment of the plan; the workspace has a
            // row for every partial sum.
            unsafe { gpu.launch((&NORM, &name), grid, args) };
        }
        Some(mean) => {
            let name = format!("layer_norm_backward_{kind}{dtype}");
            let mean = address(mean);
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
    // SAFETY: the kernel before this one has written this many rows of each of the sums.
    unsafe { add_partials(gpu, sums, parts, part_count) };
}

/// Returns the address of the sums, and the columns of a whole row.
fn sums_of_rows(sums: Option<RowSums<'_>>, rows: usize) -> (u64, f32) {
    let Some(RowSums { sums, cols }) = sums else { unreachable!("the kernel reads sums") };
    check_statistics(rows, &[sums]);
    (address(sums), cols as f32)
}

/// Sums squares, or products in backward, over the columns of each row.
fn row_sums(gpu: &GpuContext, args: RmsNormSumsArgs) {
    let RmsNormSumsArgs { cols, x, factors, sums } = args;
    let sums = sums.as_view();
    let rows = sums.len();
    check_statistics(rows, &[sums]);
    let GainAndGradient { weight, offset, dy } =
        factors.unwrap_or(GainAndGradient { weight: x, offset: 0.0, dy: x });
    let parameters: &[View] = if factors.is_some() { &[weight] } else { &[] };
    check_operands(rows, cols, &[x, dy], parameters);
    let plan = RowPlan::new(x.dtype(), cols, &[x, weight, dy], &FORWARD);
    let name = format!("rms_norm_sums_{}{}", plan.form, float_name(x.dtype()));
    let [weight, dy] = if factors.is_some() { [address(weight), address(dy)] } else { [0; 2] };
    let (x, to) = (address(x), address(sums));
    let (grid, rows, cols) = (plan.grid(gpu, rows), rows as u64, cols as u64);
    let args = args![x, weight, offset, dy, to, rows, cols, plan.lanes];
    // SAFETY: the operands have the sizes that were checked, and the alignment of the plan.
    unsafe { gpu.launch((&NORM, &name), grid, args) };
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

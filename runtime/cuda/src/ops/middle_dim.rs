//! Reductions over a middle dim other than sums, functions of elements and of the results of their columns, and the
//! first element of a column.

use bytemuck::{Pod, Zeroable};

use crate::gpu::args;
use crate::kernels::MIDDLE_DIM;
use crate::{CudaBackend, GpuContext, Grid};
use meshwright_backend::ops::middle_dim::{
    FindInDimArgs, MapDimArgs, PlaceInDimArgs, ReduceDimArgs,
};
use meshwright_backend::{
    DType, DimFunction, DimPositions, DimReduction, MiddleDim, MiddleDimOps, View,
};

use super::launch::{THREADS, address, aligned, check_operand, covering, float_name, vector_width};
use super::reduce::MiddleSum;

impl MiddleDimOps for CudaBackend {
    /// Few results of many elements are computed in two stages, the first over parts.
    fn reduce_dim(&self, dim: MiddleDim, reduction: DimReduction, args: ReduceDimArgs) {
        let gpu = self.gpu();
        let (y, sizes) = (args.y.as_view(), Sizes::new(dim));
        check_elements("reduce_dim", args.x.dtype(), [args.x, args.second], dim);
        check_operand("y", y, DType::F32, dim.outer * dim.inner);
        if let Some(column) = args.column {
            check_operand("column", column, DType::F32, dim.outer * dim.inner);
        }
        if y.is_empty() {
            return;
        }
        let is_smallest = reduction == DimReduction::Smallest;
        let is_sum = !is_smallest && reduction != DimReduction::Largest;
        let scale = if is_smallest { -args.scale } else { args.scale };
        let operands = [address(args.x), address(args.second), args.column.map_or(0, address)];
        let [dtype, name] = [float_name(args.x.dtype()), reduction.name()];
        let parts = sizes.of_sum(args.x).parts();
        if parts == 1 {
            // SAFETY: the operands have these sizes.
            return unsafe { sizes.launch(gpu, name, dtype, operands, 1, address(y), scale) };
        }
        let partial = gpu.workspace((sizes.outer * parts * sizes.inner * 4) as usize);
        // SAFETY: the operands have these sizes, and there is room for the results of all parts.
        unsafe { sizes.launch(gpu, name, dtype, operands, parts, partial, 1.0) };
        let of_parts = Sizes { n: parts, ..sizes };
        if is_sum {
            let sum = MiddleSum { x: partial, dtype: DType::F32, ..of_parts.of_sum(args.x) };
            sum.launch_sum(gpu, 1, address(y), DType::F32, scale);
        } else {
            let operands = [partial, partial, 0];
            // SAFETY: the kernel before this one has written the results of all parts.
            unsafe { of_parts.launch(gpu, "largest", "f32", operands, 1, address(y), scale) };
        }
    }

    fn map_dim(&self, dim: MiddleDim, function: DimFunction, args: MapDimArgs) {
        let gpu = self.gpu();
        let MapDimArgs { x, second, c, d, y } = args;
        let (y, dtype) = (y.as_view(), x.dtype());
        check_elements("map_dim", dtype, [x, second, y], dim);
        check_columns([c, d], dim);
        let vector = vector_width(dtype);
        // A vector is inside one row, or inside one column.
        let length = if dim.inner == 1 { dim.len } else { dim.inner };
        let fits = length.is_multiple_of(vector) && aligned(&[x, second, y], vector);
        let (vector, suffix) = if fits { (vector, "_vectors") } else { (1, "") };
        let name = format!("map_{}_{}{suffix}", function.name(), float_name(dtype));
        let Sizes { outer, n, inner } = Sizes::new(dim);
        let [x, second, c, d] = [x, second, c, d].map(address);
        // SAFETY: the operands have these sizes.
        unsafe {
            gpu.launch(
                (&MIDDLE_DIM, &name),
                covering(gpu, (y.len() / vector) as u64),
                args![x, second, c, d, outer, n, inner, address(y)],
            )
        };
    }

    fn find_in_dim(&self, dim: MiddleDim, args: FindInDimArgs) {
        let gpu = self.gpu();
        let FindInDimArgs { x, column, positions, found } = args;
        let found = found.as_view();
        check_elements("find_in_dim", x.dtype(), [x], dim);
        check_columns([column, found], dim);
        let name = format!("find_in_dim_{}", float_name(x.dtype()));
        let Sizes { outer, n, inner } = Sizes::new(dim);
        let lanes: u32 = if inner < 32 { 32 } else { 1 };
        // SAFETY: the operands have these sizes.
        unsafe {
            gpu.launch(
                (&MIDDLE_DIM, &name),
                covering(gpu, outer * inner * u64::from(lanes)),
                args![
                    address(x),
                    address(column),
                    Positions::from(positions),
                    outer,
                    n,
                    inner,
                    lanes,
                    address(found)
                ],
            )
        };
    }

    fn place_in_dim(&self, dim: MiddleDim, args: PlaceInDimArgs) {
        let gpu = self.gpu();
        let PlaceInDimArgs { found, positions, dy, dx } = args;
        let dx = dx.as_view();
        check_elements("place_in_dim", dy.dtype(), [dx], dim);
        check_operand("found", found, DType::F32, dim.outer * dim.inner);
        check_operand("dy", dy, dx.dtype(), dim.outer * dim.inner);
        let name = format!("place_in_dim_{}", float_name(dx.dtype()));
        let Sizes { outer, n, inner } = Sizes::new(dim);
        let (found, positions) = (address(found), Positions::from(positions));
        // SAFETY: the operands have these sizes.
        unsafe {
            gpu.launch(
                (&MIDDLE_DIM, &name),
                covering(gpu, dx.len() as u64),
                args![found, positions, address(dy), outer, n, inner, address(dx)],
            )
        };
    }
}

/// Checks that operands have these elements.
fn check_elements<const N: usize>(name: &str, dtype: DType, views: [View; N], dim: MiddleDim) {
    for view in views {
        check_operand(name, view, dtype, dim.outer * dim.len * dim.inner);
    }
}

/// Checks that operands have a number for each column.
fn check_columns<const N: usize>(views: [View; N], dim: MiddleDim) {
    for view in views {
        check_operand("column", view, DType::F32, dim.outer * dim.inner);
    }
}

/// A middle dim as arguments of kernels.
#[derive(Clone, Copy)]
struct Sizes {
    outer: u64,
    n: u64,
    inner: u64,
}

impl Sizes {
    fn new(dim: MiddleDim) -> Sizes {
        let [outer, n, inner] = [dim.outer, dim.len, dim.inner].map(|size| size as u64);
        Sizes { outer, n, inner }
    }

    /// Returns the sum of these sizes, whose parts and blocks all reductions have.
    fn of_sum(self, x: View) -> MiddleSum {
        let Sizes { outer, n, inner } = self;
        MiddleSum { outer, n, inner, x: address(x), dtype: x.dtype() }
    }

    /// Launches a reduction, in `parts` parts that are not combined.
    ///
    /// # Safety
    /// `operands`, elements of two operands and numbers of columns or 0, have these sizes, and `y` a result for each
    /// column and part.
    #[allow(clippy::too_many_arguments, reason = "they are the arguments of the kernel")]
    unsafe fn launch(
        self,
        gpu: &GpuContext,
        reduction: &str,
        dtype: &str,
        [x, second, column]: [u64; 3],
        parts: u64,
        y: u64,
        scale: f32,
    ) {
        let Sizes { outer, n, inner } = self;
        let form = if inner == 1 { "rows" } else { "columns" };
        let name = format!("{reduction}_{form}_{dtype}");
        let sum = MiddleSum { outer, n, inner, x, dtype: DType::F32 };
        let blocks = sum.blocks(1).min(i32::MAX as u64) as u32;
        let grid = Grid { blocks: [blocks, parts as u32, 1], threads: THREADS, shared: 0 };
        // SAFETY: as the caller promises.
        unsafe {
            let args = args![x, second, column, outer, n, inner, y, scale];
            gpu.launch((&MIDDLE_DIM, &name), grid, args);
        }
    }
}

/// `Positions` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Positions {
    offset: u64,
    gap_at: u64,
    gap: u64,
}

impl From<DimPositions> for Positions {
    fn from(positions: DimPositions) -> Positions {
        let DimPositions { offset, gap_at, gap } = positions;
        let [offset, gap_at, gap] = [offset, gap_at, gap].map(|index| index as u64);
        Positions { offset, gap_at, gap }
    }
}

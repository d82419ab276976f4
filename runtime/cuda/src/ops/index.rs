//! Elements by their index along a dim, indices of the largest elements, and running sums.

use bytemuck::{Pod, Zeroable};

use super::launch::{THREADS, address, check_operand, covering, float_name, most_blocks};
use crate::gpu::args;
use crate::kernels::INDEX;
use crate::{CudaBackend, GpuContext, Grid};
use meshwright_backend::{DType, IndexOps, IndexedDim, MiddleDim, View, ViewMut};

/// The argument `IndexedDim` of kernels.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct IndexedDimArg([u64; 8]);

impl IndexedDimArg {
    fn new(shape: &IndexedDim) -> IndexedDimArg {
        let &IndexedDim { outer, len, inner, count, is_elementwise, first, gap: [gap_at, gap] } =
            shape;
        let all = [outer, len, inner, count, usize::from(is_elementwise), first, gap_at, gap];
        IndexedDimArg(all.map(|n| n as u64))
    }
}

impl IndexOps for CudaBackend {
    fn take_elements(&self, shape: &IndexedDim, indices: View, x: View, out: ViewMut) {
        let (gpu, out) = (self.gpu(), out.as_view());
        shape.check(indices.len(), x.len(), out.len());
        check_operand("indices", indices, DType::U32, shape.indices());
        assert_eq!(x.dtype(), out.dtype(), "taken elements have one dtype");
        let name = format!("take_elements_{}", float_name(x.dtype()));
        let grid = covering(gpu, out.len() as u64);
        let (shape, indices, x, out) =
            (IndexedDimArg::new(shape), address(indices), address(x), address(out));
        // SAFETY: the operands have the sizes of the shape, and places outside of the held elements are not read.
        unsafe { gpu.launch((&INDEX, &name), grid, args![shape, indices, x, out]) };
    }

    fn add_elements(&self, shape: &IndexedDim, indices: View, x: View, out: ViewMut) {
        let (gpu, out) = (self.gpu(), out.as_view());
        shape.check(indices.len(), out.len(), x.len());
        check_operand("indices", indices, DType::U32, shape.indices());
        check_operand("out", out, DType::F32, out.len());
        let name = format!("add_elements_{}", float_name(x.dtype()));
        let grid = covering(gpu, (shape.outer * shape.inner) as u64);
        let (shape, indices, x, out) =
            (IndexedDimArg::new(shape), address(indices), address(x), address(out));
        // SAFETY: as above, and one thread writes each column.
        unsafe { gpu.launch((&INDEX, &name), grid, args![shape, indices, x, out]) };
    }

    fn largest(&self, dim: MiddleDim, k: usize, x: View, positions: ViewMut) {
        let (gpu, positions) = (self.gpu(), positions.as_view());
        let MiddleDim { outer, len, inner } = dim;
        assert!(k <= len, "a dim has no more largest elements than elements");
        assert_eq!(x.len(), outer * len * inner, "largest: sizes");
        check_operand("positions", positions, DType::U32, outer * k * inner);
        let [columns, len, inner, k] = [outer * inner, len, inner, k].map(|n| n as u64);
        let (name, grid) = (format!("largest_{}", float_name(x.dtype())), block_each(gpu, columns));
        let (x, positions) = (address(x), address(positions));
        // SAFETY: the operands have these sizes, and one block writes each column.
        unsafe {
            gpu.launch((&INDEX, &name), grid, args![x, columns, len, inner, k, positions]);
        }
    }

    fn running_sum(&self, dim: MiddleDim, from_end: bool, x: View, y: ViewMut) {
        let (gpu, y) = (self.gpu(), y.as_view());
        let MiddleDim { outer, len, inner } = dim;
        let is_of_sizes = x.len() == outer * len * inner && y.len() == x.len();
        assert!(is_of_sizes && x.dtype() == y.dtype(), "running_sum: sizes");
        let [outer, len, inner] = [outer, len, inner].map(|n| n as u64);
        let dtype = float_name(x.dtype());
        let (from, to, from_end) = (address(x), address(y), u32::from(from_end));
        if inner == 1 {
            let (name, grid) = (format!("sum_rows_{dtype}"), block_each(gpu, outer));
            // SAFETY: the operands have these sizes, and one block writes each row.
            unsafe { gpu.launch((&INDEX, &name), grid, args![from, to, outer, len, from_end]) };
            return;
        }
        let (name, grid) = (format!("sum_columns_{dtype}"), covering(gpu, outer * inner));
        // SAFETY: the operands have these sizes, and one thread writes each column.
        unsafe { gpu.launch((&INDEX, &name), grid, args![from, to, outer, len, inner, from_end]) };
    }
}

/// Returns a grid with a block for each of `n`, as far as blocks are useful.
fn block_each(gpu: &GpuContext, n: u64) -> Grid {
    Grid { blocks: [n.min(most_blocks(gpu)) as u32, 1, 1], threads: THREADS, shared: 0 }
}

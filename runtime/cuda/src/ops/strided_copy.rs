//! Copies to another order of dims.

use bytemuck::{Pod, Zeroable};

use super::launch::{THREADS, address, covering, most_blocks};
use crate::gpu::args;
use crate::kernels::STRIDED_COPY;
use crate::{GpuContext, Grid};
use meshwright_backend::{CopyDim, StridedCopy, View, ViewMut};

/// Maximum dims of a kernel.
const DIMS: usize = 5;

/// Rows and columns of a tile, as in the kernel.
const TILE: u64 = 32;

/// Minimum size of both sides of tiles: below it, most of a tile would be empty.
const MIN_SIDE: usize = 8;

/// The argument `CopyDims` of kernels: dims from the outermost to the innermost one, behind dims of one element.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct CopyDims {
    sizes: [u64; DIMS],
    src: [u64; DIMS],
    dst: [u64; DIMS],
}

impl CopyDims {
    fn new(dims: &[CopyDim]) -> CopyDims {
        let mut all = CopyDims { sizes: [1; DIMS], src: [0; DIMS], dst: [0; DIMS] };
        for (at, dim) in (DIMS - dims.len()..).zip(dims) {
            (all.sizes[at], all.src[at], all.dst[at]) =
                (dim.size as u64, dim.src as u64, dim.dst as u64);
        }
        all
    }
}

/// Launches the copy: in the largest units that runs consist of, or in tiles if neighbors in the source are none in the
/// destination.
pub(super) fn launch_strided_copy(
    gpu: &GpuContext,
    copy: &StridedCopy,
    src: View,
    mut dst: ViewMut,
) {
    assert_eq!(src.dtype(), dst.dtype(), "copied elements have one dtype");
    let [src_end, dst_end] = copy.ends();
    assert!(
        src_end <= src.len() && dst_end <= dst.len(),
        "copied elements are inside the operands"
    );
    if copy.elements() == 0 {
        return;
    }
    let src = src.slice(copy.src_start..src_end);
    let dst = dst.slice(copy.dst_start..dst_end);
    let (from, to, bytes) = (address(src), address(dst.as_view()), src.dtype().bytes());
    match copy.dims() {
        [outer @ .., cols] if cols.dst == 1 && cols.src > 1 && cols.size >= MIN_SIDE => {
            let side = outer.iter().position(|dim| dim.src == 1 && dim.size >= MIN_SIDE);
            match side {
                Some(side) => launch_tiles(gpu, bytes, [to, from], outer, side, *cols),
                None => launch_elements(gpu, bytes, [to, from], copy.dims()),
            }
        }
        [outer @ .., run] if run.src == 1 && run.dst == 1 => {
            let strides = outer.iter().flat_map(|dim| [dim.src, dim.dst]).chain([run.size]);
            let all = strides.fold(from | to | 16, |all, stride| all | (stride * bytes) as u64);
            let unit = 1usize << all.trailing_zeros();
            let in_units = |elements: usize| elements * bytes / unit;
            let outer = outer.iter().map(|dim| CopyDim {
                size: dim.size,
                src: in_units(dim.src),
                dst: in_units(dim.dst),
            });
            let run = CopyDim { size: in_units(run.size), ..*run };
            let dims: Vec<CopyDim> = outer.chain([run]).collect();
            launch_elements(gpu, unit, [to, from], &dims);
        }
        dims => launch_elements(gpu, bytes, [to, from], dims),
    }
}

/// Launches a copy of units of `unit` bytes, which strides are in.
fn launch_elements(gpu: &GpuContext, unit: usize, [to, from]: [u64; 2], dims: &[CopyDim]) {
    let n: u64 = dims.iter().map(|dim| dim.size as u64).product();
    let name = format!("copy_strided_{unit}");
    // SAFETY: the elements lie inside the views, and those of the destination are distinct.
    unsafe {
        gpu.launch(
            (&STRIDED_COPY, &name),
            covering(gpu, n),
            args![to, from, CopyDims::new(dims), n],
        )
    };
}

/// Launches a copy in tiles of the dims `outer[side]`, whose elements are neighbors in the source, and `cols`, whose
/// elements are neighbors in the destination.
fn launch_tiles(
    gpu: &GpuContext,
    bytes: usize,
    [to, from]: [u64; 2],
    outer: &[CopyDim],
    side: usize,
    cols: CopyDim,
) {
    let rows = outer[side];
    let others: Vec<CopyDim> =
        outer.iter().enumerate().filter(|(at, _)| *at != side).map(|(_, dim)| *dim).collect();
    let count: u64 = others.iter().map(|dim| dim.size as u64).product();
    let tiles = |size: usize| (size as u64).div_ceil(TILE);
    let blocks = (count * tiles(rows.size) * tiles(cols.size)).min(most_blocks(gpu)) as u32;
    let grid = Grid { blocks: [blocks, 1, 1], threads: THREADS, shared: 0 };
    let [row_count, row_dst, col_count, col_src] =
        [rows.size, rows.dst, cols.size, cols.src].map(|n| n as u64);
    let name = format!("copy_tiles_{bytes}");
    // SAFETY: as above.
    unsafe {
        gpu.launch(
            (&STRIDED_COPY, &name),
            grid,
            args![to, from, CopyDims::new(&others), count, row_count, row_dst, col_count, col_src],
        )
    };
}

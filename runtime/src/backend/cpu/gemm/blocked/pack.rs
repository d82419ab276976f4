//! Copies operands into panels, in f32: as wide as a tile, one step of the depth after the other.

use std::ops::Range;

use super::Tile;
use crate::backend::cpu::float::Float;
use crate::backend::cpu::gemm::Matrix;

/// The part of a matrix that is packed: rows `lead` go into panels, of which the last one is filled up with zeros, and
/// columns `depth` are the steps of each panel.
#[derive(Clone)]
pub struct PackedRegion {
    pub lead: Range<usize>,
    pub depth: Range<usize>,
}

/// Packs rows of `matrix` for the left side of a matmul.
pub fn pack_left<T: Float>(
    tile: Tile,
    matrix: Matrix<T>,
    region: PackedRegion,
    panels: &mut [f32],
) {
    match tile {
        // SAFETY: the CPU has these instructions, or `Tile::of_level` would not have chosen this tile.
        Tile::Avx2 => unsafe { pack_avx2::<T, 6>(matrix, region, panels) },
        // SAFETY: as above.
        Tile::Avx512 => unsafe { pack_avx512::<T, 12>(matrix, region, panels) },
    }
}

/// Packs columns for the right side: rows of `matrix`, which is the operand's transpose.
pub fn pack_right<T: Float>(
    tile: Tile,
    matrix: Matrix<T>,
    region: PackedRegion,
    panels: &mut [f32],
) {
    match tile {
        // SAFETY: as above.
        Tile::Avx2 => unsafe { pack_avx2::<T, 16>(matrix, region, panels) },
        // SAFETY: as above.
        Tile::Avx512 => unsafe { pack_avx512::<T, 32>(matrix, region, panels) },
    }
}

#[target_feature(enable = "avx2,fma")]
fn pack_avx2<T: Float, const W: usize>(
    matrix: Matrix<T>,
    region: PackedRegion,
    panels: &mut [f32],
) {
    pack::<T, W>(matrix, region, panels);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn pack_avx512<T: Float, const W: usize>(
    matrix: Matrix<T>,
    region: PackedRegion,
    panels: &mut [f32],
) {
    pack::<T, W>(matrix, region, panels);
}

#[inline(always)]
fn pack<T: Float, const W: usize>(matrix: Matrix<T>, region: PackedRegion, panels: &mut [f32]) {
    let PackedRegion { lead, depth } = region;
    let starts = lead.clone().step_by(W);
    for (start, panel) in starts.zip(panels.chunks_exact_mut(W * depth.len())) {
        let data = &matrix.data[start * matrix.row + depth.start * matrix.col..];
        match W.min(lead.end - start) {
            live if live < W => pack_part::<T, W>(data, matrix.row, matrix.col, live, panel),
            _ if matrix.row == 1 => copy_panel::<T, W>(data, matrix.col, panel),
            _ => transpose::<T, W>(data, matrix.row, panel),
        }
    }
}

/// Packs rows whose elements of a step are contiguous.
#[inline(always)]
fn copy_panel<T: Float, const W: usize>(data: &[T], step: usize, panel: &mut [f32]) {
    for (p, to) in panel.chunks_exact_mut(W).enumerate() {
        let from = data[p * step..].first_chunk::<W>().expect("a panel's elements are there");
        for (to, from) in to.iter_mut().zip(from) {
            *to = from.widen_to_f32();
        }
    }
}

/// Transposes rows whose steps are contiguous, at most eight rows at a time: if `row` is a power of two, the lines of
/// all rows map to one set of the cache, which holds eight.
#[inline(always)]
fn transpose<T: Float, const W: usize>(data: &[T], row: usize, panel: &mut [f32]) {
    let depth = panel.len() / W;
    for group in (0..W).step_by(8) {
        let rows = &data[group * row..];
        match W - group {
            4 => transpose_rows::<T, 4>(rows, row, depth, W, &mut panel[group..]),
            6 => transpose_rows::<T, 6>(rows, row, depth, W, &mut panel[group..]),
            _ => transpose_rows::<T, 8>(rows, row, depth, W, &mut panel[group..]),
        }
    }
}

#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn transpose_rows<T: Float, const N: usize>(
    data: &[T],
    row: usize,
    depth: usize,
    width: usize,
    to: &mut [f32],
) {
    let mut rows = [&data[..depth]; N];
    for i in 0..N {
        rows[i] = &data[i * row..][..depth];
    }
    for p in 0..depth {
        let to = to[p * width..].first_chunk_mut::<N>().expect("a panel has room");
        for i in 0..N {
            to[i] = rows[i][p].widen_to_f32();
        }
    }
}

/// The last panel, which is not full.
fn pack_part<T: Float, const W: usize>(
    data: &[T],
    row: usize,
    step: usize,
    live: usize,
    panel: &mut [f32],
) {
    for (p, to) in panel.chunks_exact_mut(W).enumerate() {
        for (i, to) in to.iter_mut().enumerate() {
            *to = if i < live { data[i * row + p * step].widen_to_f32() } else { 0.0 };
        }
    }
}

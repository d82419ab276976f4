//! Copies operands into panels, in f32: as wide as a tile, one step of the depth after the other.

use std::ops::Range;

use super::transpose::transpose;
use crate::float::Float;
use crate::gemm::Matrix;
use crate::gemm::lanes::Lanes;
use crate::gemm::tile::TileKernel;

/// The part of a matrix that is packed: rows `lead` go into panels, and columns `depth` are the steps of each panel.
/// The last panel is filled up with zeros.
#[derive(Clone)]
pub struct PackedRegion {
    pub lead: Range<usize>,
    pub depth: Range<usize>,
}

/// Packs rows of `matrix`: of the left operand into panels of a tile's rows, or of the right operand's transpose into
/// panels of its columns.
pub struct Pack<'a, T> {
    pub matrix: Matrix<'a, T>,
    pub region: PackedRegion,
    pub panels: &'a mut [f32],
    pub side: Side,
}

/// The side of a matmul on which an operand is.
pub enum Side {
    Left,
    Right,
}

impl<T: Float> TileKernel for Pack<'_, T> {
    #[inline(always)]
    unsafe fn run<L: Lanes, const R: usize, const W: usize>(self) {
        let Pack { matrix, region, panels, side } = self;
        match side {
            Side::Left => pack::<T, R>(matrix, region, panels),
            Side::Right => pack::<T, W>(matrix, region, panels),
        }
    }
}

#[inline(always)]
fn pack<T: Float, const W: usize>(matrix: Matrix<T>, region: PackedRegion, panels: &mut [f32]) {
    let PackedRegion { lead, depth } = region;
    let whole = lead.len() / W;
    let (full, last) = panels.split_at_mut(whole * W * depth.len());
    let data = &matrix.data[lead.start * matrix.row + depth.start * matrix.col..];
    if matrix.row == 1 {
        copy_panels::<T, W>(data, matrix.col, depth.len(), full);
    } else {
        for (index, panel) in full.chunks_exact_mut(W * depth.len()).enumerate() {
            transpose::<T, W>(&data[index * W * matrix.row..], matrix.row, panel);
        }
    }
    let rest = lead.len() % W;
    if rest > 0 {
        let data = &data[whole * W * matrix.row..];
        pack_part::<T, W>(data, matrix, rest, &mut last[..W * depth.len()]);
    }
}

/// Packs rows whose elements of a step are contiguous: step by step, so that memory is read in the order of addresses.
#[inline(always)]
fn copy_panels<T: Float, const W: usize>(
    data: &[T],
    step: usize,
    depth: usize,
    panels: &mut [f32],
) {
    let width = panels.len() / depth;
    for p in 0..depth {
        let (row, _) = data[p * step..][..width].as_chunks::<W>();
        for (from, panel) in row.iter().zip(panels.chunks_exact_mut(W * depth)) {
            let to = panel[p * W..].first_chunk_mut::<W>().expect("a panel has all steps");
            for (to, from) in to.iter_mut().zip(from) {
                *to = from.widen_to_f32();
            }
        }
    }
}

/// Packs the last panel, which has only `live` rows.
fn pack_part<T: Float, const W: usize>(
    data: &[T],
    Matrix { row, col, .. }: Matrix<T>,
    live: usize,
    panel: &mut [f32],
) {
    for (p, to) in panel.chunks_exact_mut(W).enumerate() {
        for (i, to) in to.iter_mut().enumerate() {
            *to = if i < live { data[i * row + p * col].widen_to_f32() } else { 0.0 };
        }
    }
}

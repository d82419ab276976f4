//! Matmuls in blocks that stay in the caches (Goto and van de Geijn 2008), with tiles for AVX2, for AVX-512 and for
//! other CPUs.
//!
//! Operands are packed into panels of f32, independently of their layout and type, and sums are f32 throughout.

mod pack;
mod prefetch;
#[cfg(test)]
mod tests;
mod tile;
mod transpose;

use std::ops::Range;

use pack::{Pack, PackedRegion, Side};
use prefetch::PrefetchedRegion;
use tile::{Block, PackedLeft, PackedRight, ResultBlock};

use super::Matrix;
use super::rounded::matmul_rounded;
use super::tile::Tile;
use crate::float::Float;
use crate::scratch::with_scratch;
use crate::workers::{Rows, Workers};

/// Rows of a packed block of the left operand, which stays in the second-level cache. A multiple of a tile's rows.
const ROWS: usize = 144;

/// Elements between rows whose corresponding elements map to one set of the first-level cache: the rows of a tile evict
/// each other there.
const CONFLICTING: usize = 1024;

/// Columns of a packed block of the right operand, which stays in the third-level cache.
const COLUMNS: usize = 2048;

/// Implements [`matmul`](super::matmul) by tiles.
pub(super) fn matmul<T: Float, C: Float>(
    workers: &Workers,
    tile: Tile,
    mnk: [usize; 3],
    a: Matrix<T>,
    b: Matrix<T>,
    accumulate: bool,
    c: &mut [C],
) {
    matmul_rounded(workers, mnk, a, accumulate, c, |mnk, a, c| match unpacked(tile, mnk, a, b) {
        Some((a, b)) if workers.threads() == 1 => {
            let [_, n, k] = mnk;
            let c = ResultBlock { data: c, stride: n, start: 0, columns: n };
            tile.run(Block { depth: k, a, b, c, add: accumulate });
        }
        _ => packed(workers, tile, mnk, a, b, accumulate, c),
    });
}

/// Maximum rows of unpacked operands, for which packing takes longer than it saves.
const SMALL: usize = 64;

/// Returns the operands of a small matmul unpacked, if the right one consists of whole panels. Only packed operands are
/// divided over threads.
fn unpacked<'a, T: Float>(
    tile: Tile,
    [m, n, k]: [usize; 3],
    a: Matrix<'a, T>,
    b: Matrix<'a, T>,
) -> Option<(PackedLeft<'a>, PackedRight<'a>)> {
    let whole_panels = b.col == 1 && n.is_multiple_of(tile.columns);
    if !whole_panels || m > SMALL || k > tile.depth || n > COLUMNS {
        return None;
    }
    let (a_data, b_data) = (T::in_place(a.data)?, T::in_place(b.data)?);
    let left = left_in_place(tile, Matrix { data: a_data, row: a.row, col: a.col });
    Some((left, PackedRight { data: b_data, panel: tile.columns, step: b.row }))
}

/// Packs a right operand `[k, n]` into panels of a tile's columns, each of all `k` steps.
pub(super) fn pack_panels<T: Float>(
    tile: Tile,
    [k, n]: [usize; 2],
    b: Matrix<T>,
    panels: &mut [f32],
) {
    pack_all_right(&Workers::ONE, tile, b, PackedRegion { lead: 0..n, depth: 0..k }, panels);
}

/// Implements [`matmul`](super::matmul) on one thread, for a right operand in panels of `panel`
/// elements and a left one that is read where it is, in a single block: for up to a few hundred steps.
pub(super) fn matmul_by_panels(
    tile: Tile,
    [_, n, k]: [usize; 3],
    a: Matrix,
    panels: &[f32],
    panel: usize,
    accumulate: bool,
    c: &mut [f32],
) {
    let right = PackedRight { data: panels, panel, step: tile.columns };
    let c = ResultBlock { data: c, stride: n, start: 0, columns: n };
    tile.run(Block { depth: k, a: left_in_place(tile, a), b: right, c, add: accumulate });
}

/// Returns the left operand in place, without packing.
fn left_in_place<'a>(tile: Tile, a: Matrix<'a>) -> PackedLeft<'a> {
    PackedLeft { data: a.data, panel: tile.rows * a.row, row: a.row, step: a.col }
}

/// Returns the depth of a block: the largest possible one, the same for all blocks except the last.
fn block_depth(tile: Tile, k: usize) -> usize {
    k.div_ceil(k.div_ceil(tile.depth))
}

fn packed<T: Float>(
    workers: &Workers,
    tile: Tile,
    [m, n, k]: [usize; 3],
    a: Matrix<T>,
    b: Matrix<T>,
    accumulate: bool,
    c: &mut [f32],
) {
    let depth = block_depth(tile, k);
    let width = n.min(COLUMNS).next_multiple_of(tile.columns);
    // As many blocks for each thread, so that none waits long for the others.
    let share = m.div_ceil(workers.threads());
    let rows = share.div_ceil(share.div_ceil(ROWS)).next_multiple_of(tile.rows);
    with_scratch(width * depth, |right| {
        for start in (0..n).step_by(COLUMNS) {
            let columns = COLUMNS.min(n - start);
            for from in (0..k).step_by(depth) {
                let steps = from..k.min(from + depth);
                let len = columns.next_multiple_of(tile.columns) * steps.len();
                let lead = start..start + columns;
                pack_all_right(
                    workers,
                    tile,
                    b,
                    PackedRegion { lead, depth: steps.clone() },
                    &mut right[..len],
                );
                let b = PackedRight {
                    data: &right[..len],
                    panel: tile.columns * steps.len(),
                    step: tile.columns,
                };
                let rows_of_c = Rows(&mut *c, n);
                workers.chunks(m, rows, rows_of_c, |lead, Rows(data, stride)| {
                    let next = PrefetchedRegion::new(a, next_region([m, k], &lead, &steps));
                    let c = ResultBlock { data, stride, start, columns };
                    let region = PackedRegion { lead, depth: steps.clone() };
                    multiply_rows(tile, (a, region), next, b, c, accumulate || from > 0);
                });
            }
        }
    });
}

/// Returns the region of the left operand `[m, k]` that is packed after rows `lead` of `steps`.
fn next_region([m, k]: [usize; 2], lead: &Range<usize>, steps: &Range<usize>) -> PackedRegion {
    if lead.end < m {
        return PackedRegion { lead: lead.end..m.min(lead.end + lead.len()), depth: steps.clone() };
    }
    let from = if steps.end < k { steps.end } else { 0 };
    PackedRegion { lead: 0..m.min(ROWS), depth: from..k.min(from + steps.len()) }
}

/// Multiplies some rows of the left operand with a packed block of the right one.
fn multiply_rows<T: Float>(
    tile: Tile,
    (a, region): (Matrix<T>, PackedRegion),
    next: PrefetchedRegion<T>,
    b: PackedRight,
    c: ResultBlock,
    add: bool,
) {
    let depth = region.depth.len();
    let mut multiply = |a: PackedLeft| {
        let panels = c.columns.div_ceil(tile.columns);
        for panel in 0..panels {
            next.request(panel, panels);
            let column = panel * tile.columns;
            let columns = tile.columns.min(c.columns - column);
            let c = ResultBlock { data: &mut *c.data, start: c.start + column, columns, ..c };
            tile.run(Block { depth, a, b: b.panel(panel), c, add });
        }
    };
    if let Some(data) = T::in_place(a.data)
        && a.col == 1
        && !a.row.is_multiple_of(CONFLICTING)
    {
        let data = &data[region.lead.start * a.row + region.depth.start..];
        return multiply(left_in_place(tile, Matrix { data, row: a.row, col: a.col }));
    }
    with_scratch(region.lead.len().next_multiple_of(tile.rows) * depth, |left| {
        tile.run(Pack { matrix: a, region, panels: &mut *left, side: Side::Left });
        multiply(PackedLeft { data: left, panel: tile.rows * depth, row: 1, step: tile.rows });
    });
}

/// Packs the right operand, each panel as a task of its own.
fn pack_all_right<T: Float>(
    workers: &Workers,
    tile: Tile,
    b: Matrix<T>,
    region: PackedRegion,
    panels: &mut [f32],
) {
    let PackedRegion { lead, depth } = region;
    let (width, panel) = (tile.columns, tile.columns * depth.len());
    workers.rows(panels.len() / panel, panel, Rows(panels, panel), |range, Rows(panels, _)| {
        let lead = lead.start + range.start * width..lead.end.min(lead.start + range.end * width);
        let region = PackedRegion { lead, depth: depth.clone() };
        tile.run(Pack { matrix: b.transpose(), region, panels, side: Side::Right });
    });
}

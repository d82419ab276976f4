//! Copies to another order of dims.

use super::workers::{Rows, Workers};
use meshwright_backend::{CopyDim, StridedCopy};

/// Rows and columns of the blocks that a transpose is copied in: their cache lines are reused before they are evicted.
const TILE: usize = 32;

/// Copies `src` to `dst`; the outermost dim of `dst` is divided over the threads.
pub(super) fn copy_strided<T: Copy + Send + Sync>(
    workers: &Workers,
    copy: &StridedCopy,
    src: &[T],
    dst: &mut [T],
) {
    let [src_end, dst_end] = copy.ends();
    assert!(
        src_end <= src.len() && dst_end <= dst.len(),
        "copied elements are inside the operands"
    );
    let (src, dst) = (&src[copy.src_start..src_end], &mut dst[copy.dst_start..dst_end]);
    let elements = copy.elements();
    let Some((outer, rest)) = copy.dims().split_first() else {
        dst.copy_from_slice(src);
        return;
    };
    if elements == 0 {
        return;
    }
    workers.rows(outer.size, elements / outer.size, Rows(dst, outer.dst), |range, Rows(dst, _)| {
        let part = CopyDim { size: range.len(), ..*outer };
        copy_block(part, rest, &src[range.start * outer.src..], dst);
    });
}

/// Copies the dims `outer` and `rest`, from the outermost of the destination on.
fn copy_block<T: Copy>(outer: CopyDim, rest: &[CopyDim], src: &[T], dst: &mut [T]) {
    match rest {
        [] if outer.src == 1 && outer.dst == 1 => {
            dst[..outer.size].copy_from_slice(&src[..outer.size]);
        }
        [] => {
            for i in 0..outer.size {
                dst[i * outer.dst] = src[i * outer.src];
            }
        }
        [run] if outer.src < run.src => copy_tiles(outer, *run, src, dst),
        // The neighbors in the source come last, so that their dim is one side of the tiles.
        [next, run] if outer.src < next.src && outer.src < run.src => {
            for i in 0..next.size {
                copy_tiles(outer, *run, &src[i * next.src..], &mut dst[i * next.dst..]);
            }
        }
        [next, rest @ ..] => {
            for i in 0..outer.size {
                copy_block(*next, rest, &src[i * outer.src..], &mut dst[i * outer.dst..]);
            }
        }
    }
}

/// Copies two dims in tiles: rows are neighbors in the source, columns in the destination.
fn copy_tiles<T: Copy>(rows: CopyDim, cols: CopyDim, src: &[T], dst: &mut [T]) {
    for first_row in (0..rows.size).step_by(TILE) {
        let row_end = rows.size.min(first_row + TILE);
        for first_col in (0..cols.size).step_by(TILE) {
            let col_end = cols.size.min(first_col + TILE);
            for row in first_row..row_end {
                let (src, dst) = (&src[row * rows.src..], &mut dst[row * rows.dst..]);
                for col in first_col..col_end {
                    dst[col * cols.dst] = src[col * cols.src];
                }
            }
        }
    }
}

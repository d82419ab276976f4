//! bf16 GEMM with the dot products of pairs of AVX512-BF16 (`vdpbf16ps`).
//!
//! One instruction multiplies 16 pairs of bf16 and adds both products of each pair to one of 16 f32. Both operands are
//! read in pairs of consecutive elements of the contraction. The right operand is packed, by each task for its own
//! columns; rows of the left operand are read in place if they hold whole pairs, else they are packed too.
//!
//! The instruction reads subnormal bf16 as zero, flushes subnormal sums to zero, and rounds to nearest even, whatever
//! the floating-point environment.
//!
//! The sum of an element is one chain of instructions per block of the contraction, and the blocks depend on its length
//! only. So the bits of a result depend neither on the number of threads nor on the partition into tasks and tiles.

mod pack;
#[cfg(test)]
mod tests;
mod tile;

use std::ops::Range;

use half::bf16;

use super::Matrix;
use super::rounded::matmul_rounded;
use crate::float::Float;
use crate::scratch::with_scratch;
use crate::simd::Level;
use crate::workers::{Rows, Workers};
use pack::pack_strips;
use tile::{LeftPairs, SharedOutput, multiply_tiles};

/// Lanes of a register, and columns (or rows) of a packed strip.
const LANES: usize = 16;

/// Maximum length of the contraction that is summed in registers.
const MAX_DEPTH: usize = 1536;

/// Granularity of blocks of the contraction: one cache line of bf16.
const DEPTH_UNIT: usize = 32;

/// Maximum columns of a task: its packed columns stay in the second-level cache.
const MAX_WIDTH: usize = 192;

/// Minimum columns of a task, unless the result has fewer: each task reads its rows of the left operand.
const MIN_WIDTH: usize = 96;

/// Maximum rows of the left operand that are packed at a time.
const MAX_PACKED_ROWS: usize = 512;

/// Rows of the left operand that one task packs: a cache line of each source row.
const PACK_ROWS: usize = 2 * LANES;

/// Proof that the CPU has AVX512-BF16, and that it may be used.
#[derive(Debug, Clone, Copy)]
pub(super) struct DotInstructions(());

impl DotInstructions {
    /// Returns the proof if `level`, which the CPU supports, includes the instructions.
    pub fn at_level(level: Level) -> Option<Self> {
        (level == Level::Avx512Bf16).then_some(DotInstructions(()))
    }
}

/// Implements [`matmul`](super::matmul); a result in bf16 is rounded once.
pub(super) fn matmul<C: Float>(
    dots: DotInstructions,
    workers: &Workers,
    mnk: [usize; 3],
    operands: [Matrix<bf16>; 2],
    accumulate: bool,
    c: &mut [C],
) {
    let [m, n, k] = mnk;
    assert_eq!(c.len(), m * n, "the result has {m} x {n} elements");
    if k > MAX_DEPTH && !C::IS_F32 {
        let [a, b] = operands;
        return matmul_rounded(workers, mnk, a, accumulate, c, |mnk, a, sums| {
            matmul(dots, workers, mnk, [a, b], accumulate, sums)
        });
    }
    let blocked = BlockedMatmul { dots, workers, mnk, operands, output: SharedOutput::new(c, n) };
    let depth = block_depth(k);
    for start in (0..k).step_by(depth) {
        blocked.add_depth(start..k.min(start + depth), accumulate || start > 0);
    }
}

/// Returns the length of the blocks of a contraction of `k` elements; the last one may be shorter.
fn block_depth(k: usize) -> usize {
    k.div_ceil(k.div_ceil(MAX_DEPTH)).next_multiple_of(DEPTH_UNIT)
}

/// A matmul, computed one block of the contraction at a time.
struct BlockedMatmul<'a, C> {
    dots: DotInstructions,
    workers: &'a Workers,
    mnk: [usize; 3],
    operands: [Matrix<'a, bf16>; 2],
    output: SharedOutput<'a, C>,
}

impl<C: Float> BlockedMatmul<'_, C> {
    /// Computes the contraction over `depth`, added to the result if `add`.
    fn add_depth(&self, depth: Range<usize>, add: bool) {
        let [m, _, k] = self.mnk;
        let [a, _] = self.operands;
        if a.col == 1 && k.is_multiple_of(2) {
            let left = LeftPairs::in_place(Matrix { data: &a.data[depth.start..], ..a });
            return self.multiply_rows(left, 0..m, depth, add);
        }
        let pairs = depth.len().div_ceil(2);
        for start in (0..m).step_by(MAX_PACKED_ROWS) {
            let rows = start..m.min(start + MAX_PACKED_ROWS);
            let padded = rows.len().next_multiple_of(LANES);
            with_scratch(padded * pairs, |strips| {
                let strips: &mut [u32] = bytemuck::cast_slice_mut(strips);
                let parts = Rows(&mut *strips, pairs);
                self.workers.chunks(padded, PACK_ROWS, parts, |part, Rows(strips, _)| {
                    let lead = start + part.start..rows.end.min(start + part.end);
                    pack_strips(self.dots, a, lead, depth.clone(), strips);
                });
                let left = LeftPairs::packed(strips, pairs);
                self.multiply_rows(left, rows.clone(), depth.clone(), add);
            });
        }
    }

    /// Multiplies `left`, which holds `rows` of the left operand, with all columns of the right one.
    fn multiply_rows(&self, left: LeftPairs, rows: Range<usize>, depth: Range<usize>, add: bool) {
        let [_, n, _] = self.mnk;
        let [_, b] = self.operands;
        let columns = Matrix { data: b.data, row: b.col, col: b.row };
        let tasks = TaskGrid::new(rows.len(), n, self.workers.threads());
        let pairs = depth.len().div_ceil(2);
        self.workers.for_each_task(tasks.task_count(), |task| {
            let (part, lead) = tasks.rows_and_columns(task);
            with_scratch(lead.len().next_multiple_of(LANES) * pairs, |strips| {
                let strips: &mut [u32] = bytemuck::cast_slice_mut(strips);
                pack_strips(self.dots, columns, lead.clone(), depth.clone(), strips);
                // SAFETY: tasks have disjoint rows and columns, all of them inside the result.
                unsafe {
                    let to = rows.start + part.start;
                    let output = self.output.offset_to(to, lead.start);
                    let left = left.skip_rows(part.start);
                    multiply_tiles(
                        self.dots,
                        [part.len(), lead.len(), pairs],
                        left,
                        strips,
                        output,
                        add,
                    );
                }
            });
        });
    }
}

/// A partition of a result over tasks: by columns, and by rows if there are too few columns for the threads.
struct TaskGrid {
    rows: usize,
    columns: usize,
    height: usize,
    width: usize,
}

impl TaskGrid {
    fn new(rows: usize, columns: usize, threads: usize) -> Self {
        let width = columns.div_ceil(columns.div_ceil(MAX_WIDTH).next_multiple_of(threads));
        let width = width.max(MIN_WIDTH.min(columns)).next_multiple_of(LANES);
        let parts = if threads > 1 { (2 * threads).div_ceil(columns.div_ceil(width)) } else { 1 };
        TaskGrid { rows, columns, height: rows.div_ceil(parts).next_multiple_of(LANES), width }
    }

    fn task_count(&self) -> usize {
        self.rows.div_ceil(self.height) * self.columns.div_ceil(self.width)
    }

    fn rows_and_columns(&self, task: usize) -> (Range<usize>, Range<usize>) {
        let parts = self.rows.div_ceil(self.height);
        let (row, column) = (task % parts * self.height, task / parts * self.width);
        (row..self.rows.min(row + self.height), column..self.columns.min(column + self.width))
    }
}

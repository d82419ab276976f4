//! Right operands that several matmuls of tiles read.

use std::ops::Range;

#[cfg(target_arch = "x86_64")]
use super::blocked::{self, Tile};
use super::{Matrix, multiply};
use crate::float::{Float, cast_slice};
#[cfg(target_arch = "x86_64")]
use crate::simd::Level;

/// Columns of which the panels of every instruction set have a whole number.
pub(crate) const PANEL: usize = 32;

/// The right operand `[k, n]` of several matmuls on one thread, packed once into panels of its columns, as the GEMM of
/// this CPU reads it fastest.
pub(crate) struct RightOperand<'a> {
    /// Element `(p, j)` at `j / width * width * k + p * width + j % width`.
    panels: &'a mut [f32],
    sizes: [usize; 2],
    width: usize,
    chain: usize,
}

impl<'a> RightOperand<'a> {
    /// Returns the number of scratch elements of an operand of up to `[k, n]`, whose matmuls read columns of one chunk
    /// of `chunk` columns.
    pub fn scratch_len([k, n]: [usize; 2], chunk: usize) -> usize {
        k * n.next_multiple_of(panel_width(chunk))
    }

    /// Creates an operand that has no elements yet, in scratch of [`scratch_len`](Self::scratch_len) elements.
    ///
    /// Each element of a product is the sum of sums of at most `chain` terms. Rounding errors grow with the length of a
    /// chain, and the time with their number.
    pub fn new(panels: &'a mut [f32], chunk: usize, chain: usize) -> Self {
        RightOperand { panels, sizes: [0; 2], width: panel_width(chunk), chain }
    }

    /// Copies a matrix `[k, n]`.
    pub fn pack<T: Float>(&mut self, sizes @ [k, n]: [usize; 2], from: Matrix<T>) {
        self.sizes = sizes;
        let panels = &mut self.panels[..k * n.next_multiple_of(self.width)];
        if panels.is_empty() {
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(tile) = Tile::of_level(Level::detect()) {
            return blocked::pack_panels(tile, sizes, from, panels);
        }
        for (index, panel) in panels.chunks_exact_mut(self.width * k).enumerate() {
            let columns = index * self.width..n.min((index + 1) * self.width);
            copy_columns(from, columns, self.width, panel);
        }
    }

    /// `c = a * b`, or `c += a * b` if `accumulate`, where `b` is the part `[steps, columns]` of this operand.
    ///
    /// The columns lie in one chunk, and the first one is a multiple of [`PANEL`]. No size is 0.
    pub fn multiply(
        &self,
        a: Matrix,
        steps: Range<usize>,
        columns: Range<usize>,
        accumulate: bool,
        c: &mut [f32],
    ) {
        let [k, n] = self.sizes;
        assert!(steps.end <= k && columns.end <= n, "{steps:?}, {columns:?} of {:?}", self.sizes);
        let chain = steps.len().div_ceil(steps.len().div_ceil(self.chain));
        for first in steps.clone().step_by(chain) {
            let done = first - steps.start;
            let a = Matrix { data: &a.data[done * a.col..], ..a };
            let steps = first..steps.end.min(first + chain);
            self.multiply_chain(a, steps, columns.clone(), accumulate || done > 0, c);
        }
    }

    fn multiply_chain(
        &self,
        a: Matrix,
        steps: Range<usize>,
        columns: Range<usize>,
        accumulate: bool,
        c: &mut [f32],
    ) {
        let (k, width) = (self.sizes[0], self.width);
        let mnk = [c.len() / columns.len(), columns.len(), steps.len()];
        let panels = &self.panels[columns.start / width * width * k + steps.start * width..];
        #[cfg(target_arch = "x86_64")]
        if let Some(tile) = Tile::of_level(Level::detect()) {
            assert_eq!(columns.start % width, 0, "columns begin at a panel");
            return blocked::matmul_by_panels(tile, mnk, a, panels, width * k, accumulate, c);
        }
        let inside = columns.start % width;
        assert!(inside + columns.len() <= width, "{columns:?} lie in one chunk of {width}");
        multiply(mnk, a, Matrix::rows(&panels[inside..], width), accumulate, c);
    }
}

/// Returns the columns of a panel: those of a tile, or all of a chunk for the crate's matmuls.
///
/// The crate multiplies single columns in another order if their elements are adjacent. They never are, because the
/// width of a chunk may depend on the number of threads.
fn panel_width(chunk: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    if let Some(tile) = Tile::of_level(Level::detect()) {
        return tile.columns();
    }
    chunk.max(1).next_multiple_of(16)
}

/// Copies some columns as rows of `width` elements.
fn copy_columns<T: Float>(from: Matrix<T>, columns: Range<usize>, width: usize, to: &mut [f32]) {
    // Columns that fill one cache line of the copy together, so that it is written line by line.
    const STRIP: usize = 16;
    if from.col == 1 {
        for (p, to) in to.chunks_exact_mut(width).enumerate() {
            cast_slice(&from.data[p * from.row..][columns.clone()], &mut to[..columns.len()]);
        }
        return;
    }
    for first in columns.clone().step_by(STRIP) {
        let strip = STRIP.min(columns.end - first);
        let sources: [&[T]; STRIP] =
            std::array::from_fn(|i| &from.data[(first + i.min(strip - 1)) * from.col..]);
        for (p, to) in to.chunks_exact_mut(width).enumerate() {
            let to = &mut to[first - columns.start..][..strip];
            for (to, source) in to.iter_mut().zip(&sources) {
                *to = source[p * from.row].widen_to_f32();
            }
        }
    }
}

//! Right operands that several matmuls of tiles read.

use std::ops::Range;

use super::Matrix;
use super::blocked;
use super::tile::Tile;
use crate::float::Float;

/// A multiple of the columns of a panel, for every instruction set.
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
    /// Returns the number of scratch elements of an operand of up to `[k, n]`.
    pub fn scratch_len([k, n]: [usize; 2]) -> usize {
        k * n.next_multiple_of(Tile::detect().columns)
    }

    /// Creates an operand that has no elements yet, in scratch of [`scratch_len`](Self::scratch_len) elements.
    ///
    /// Each element of a product is the sum of sums of at most `chain` terms. Rounding errors grow with the length of a
    /// chain, and the time with their number.
    pub fn new(panels: &'a mut [f32], chain: usize) -> Self {
        RightOperand { panels, sizes: [0; 2], width: Tile::detect().columns, chain }
    }

    /// Copies a matrix `[k, n]`.
    pub fn pack<T: Float>(&mut self, sizes @ [k, n]: [usize; 2], from: Matrix<T>) {
        self.sizes = sizes;
        let panels = &mut self.panels[..k * n.next_multiple_of(self.width)];
        if panels.is_empty() {
            return;
        }
        blocked::pack_panels(Tile::detect(), sizes, from, panels);
    }

    /// `c = a * b`, or `c += a * b` if `accumulate`, where `b` is the part `[steps, columns]` of this operand.
    ///
    /// The first column is a multiple of [`PANEL`], and no size is 0.
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
        assert_eq!(columns.start % width, 0, "columns begin at a panel");
        blocked::matmul_by_panels(Tile::detect(), mnk, a, panels, width * k, accumulate, c);
    }
}

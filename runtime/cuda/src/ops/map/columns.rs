//! Gradients of row leaves: operands as columns, which are summed.

use super::params::Params;
use super::{are_vectors, leaves_of};
use crate::ops::launch::{aligned, vector_width};
use meshwright_backend::{DType, Expr, View};

/// Operands seen as rows of `cols` elements, a multiple of the length of every row leaf with a gradient. Columns are
/// summed in parts of some rows first.
pub(super) struct Columns {
    rows: u64,
    pub cols: usize,
    part_rows: u64,
    pub parts: u64,
}

impl Columns {
    /// Chooses the parts from the sizes alone, on which the order of sums depends.
    pub fn new(grad: View, row_lens: &[usize]) -> Columns {
        /// Threads that keep the memory of the largest devices busy, if each loads two vectors of every operand.
        const THREADS: u64 = 1 << 16;
        /// Minimum rows of a part, so that the partial sums are small compared to the operands.
        const ROWS: u64 = 16;
        let cols = row_lens.iter().fold(1, |cols, len| lcm(cols, *len));
        let rows = (grad.len() / cols) as u64;
        let vectors = (cols / vector_width(grad.dtype())).max(1) as u64;
        let parts = (THREADS / vectors).clamp(1, rows.div_ceil(ROWS));
        let part_rows = rows.div_ceil(parts);
        Columns { rows, cols, part_rows, parts: rows.div_ceil(part_rows) }
    }

    /// Returns the bytes of the partial sums of one leaf.
    pub fn bytes(&self) -> usize {
        self.parts as usize * self.cols * DType::F32.bytes()
    }

    /// Adds the parameters of a kernel that sums columns, and returns the same as
    /// [`push_elements`](super::push_elements).
    pub fn push_columns(
        &self,
        params: &mut Params,
        expr: &Expr,
        leaves: &[View],
        others: &[View],
    ) -> (u64, bool) {
        let width = vector_width(others[0].dtype());
        let (mut whole, rows) = leaves_of(expr, leaves);
        whole.extend(others);
        let are_vectors =
            self.cols.is_multiple_of(width) && aligned(&whole, width) && are_vectors(&rows, width);
        params.push_param(format_args!("uint64_t rows"), self.rows);
        params.push_param(format_args!("uint64_t cols"), self.cols as u64);
        params.push_param(format_args!("uint64_t part_rows"), self.part_rows);
        params.push_param(format_args!("uint64_t parts"), self.parts);
        params.push_param(format_args!("uint32_t wide"), u32::from(are_vectors));
        let vectors = (self.cols / if are_vectors { width } else { 1 }) as u64;
        (self.parts * vectors, are_vectors)
    }
}

/// Returns the least common multiple.
fn lcm(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

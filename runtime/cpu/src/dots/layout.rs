//! Packing of matrices as operands of [`multiply`](super::multiply).

use half::bf16;

use super::PANEL;
use crate::float::Float;
use crate::simd::dispatch;

/// Rows of elements inside a slice: `count` rows of `width` elements, `stride` elements apart.
#[derive(Clone, Copy)]
pub struct StridedRows<'a, T> {
    pub data: &'a [T],
    pub stride: usize,
    pub count: usize,
    pub width: usize,
}

impl<'a, T> StridedRows<'a, T> {
    #[inline(always)]
    fn row(&self, row: usize) -> &'a [T] {
        &self.data[row * self.stride..][..self.width]
    }
}

/// The layout of packed columns, in groups of [`PANEL`].
#[derive(Clone, Copy)]
pub struct PanelLayout {
    /// Distance between rows.
    pub row: usize,
    /// Distance between groups of columns.
    pub panel: usize,
}

dispatch! {
    /// Pairs neighboring elements of rows: `out[row, j] = (x[row, 2 j], x[row, 2 j + 1])`. The width is even.
    pub fn pair_columns<const FMA: bool, T: Float>(x: StridedRows<T>, out: &mut [u32]) {
        // In little-endian memory the lower half of a pair is first.
        let out: &mut [bf16] = bytemuck::cast_slice_mut(out);
        for (row, out) in out.chunks_exact_mut(x.width).take(x.count).enumerate() {
            for (out, x) in out.iter_mut().zip(x.row(row)) {
                *out = x.round();
            }
        }
    }
}

dispatch! {
    /// Pairs neighboring rows: `out[p, j] = (x[2 p, j], x[2 p + 1, j])`, with zeros beyond the last row and in
    /// columns beyond the width, up to whole groups.
    pub fn pair_rows<const FMA: bool, T: Float>(x: StridedRows<T>, out: &mut [u32], to: PanelLayout) {
        for p in 0..x.count.div_ceil(2) {
            let first = x.row(2 * p);
            let second = if 2 * p + 1 < x.count { Some(x.row(2 * p + 1)) } else { None };
            for (panel, first) in first.chunks(PANEL).enumerate() {
                let out = &mut out[p * to.row + panel * to.panel..][..PANEL];
                let second = second.map(|second| &second[panel * PANEL..][..first.len()]);
                match (<&[T; PANEL]>::try_from(first), second.map(<&[T; PANEL]>::try_from)) {
                    (Ok(first), Some(Ok(second))) => {
                        for i in 0..PANEL {
                            out[i] = packed_pair(first[i], second[i]);
                        }
                    }
                    _ => {
                        out.fill(0);
                        for (i, first) in first.iter().enumerate() {
                            out[i] = packed_pair(*first, second.map_or(T::ZERO, |second| second[i]));
                        }
                    }
                }
            }
        }
    }
}

dispatch! {
    /// Transposes rows of `width` words: `out[j, row] = x[row, j]`, with zeros beyond the last row up to whole
    /// groups.
    pub fn transpose<const FMA: bool>(x: &[u32], width: usize, out: &mut [u32], to: PanelLayout) {
        for (group, rows) in x.chunks(PANEL * width).enumerate() {
            let count = rows.len() / width;
            let rows: [&[u32]; PANEL] =
                std::array::from_fn(|i| &rows[i.min(count - 1) * width..][..width]);
            for j in 0..width {
                let out = &mut out[group * to.panel + j * to.row..][..PANEL];
                for (out, row) in out.iter_mut().zip(&rows) {
                    *out = row[j];
                }
                out[count..].fill(0);
            }
        }
    }
}

/// Packs two consecutive elements of the contraction.
#[inline(always)]
fn packed_pair<T: Float>(first: T, second: T) -> u32 {
    u32::from(first.round().to_bits()) | u32::from(second.round().to_bits()) << 16
}

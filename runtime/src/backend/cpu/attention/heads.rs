//! One head inside `[batch, seq, heads, head_dim]`.

use std::marker::PhantomData;
use std::ops::Range;

/// Rows of one head: `seq` rows of `dim` elements, `stride` elements apart.
#[derive(Clone, Copy)]
pub(super) struct Head<'a> {
    data: &'a [f32],
    pub stride: usize,
    dim: usize,
}

impl<'a> Head<'a> {
    pub fn new(x: &'a [f32], [seq, heads, dim]: [usize; 3], batch: usize, head: usize) -> Self {
        let stride = heads * dim;
        let first = batch * seq * stride + head * dim;
        Head { data: &x[first..first + (seq - 1) * stride + dim], stride, dim }
    }

    /// The elements from row `first` on, rows still `stride` apart.
    pub fn rows_from(&self, first: usize) -> &'a [f32] {
        &self.data[first * self.stride..]
    }

    pub fn row(&self, row: usize) -> &'a [f32] {
        &self.data[row * self.stride..][..self.dim]
    }

    /// Writes `[dim, rows.len()]`, the transpose of some rows.
    pub fn transpose(&self, rows: Range<usize>, out: &mut [f32]) {
        // Rows that fill one cache line of the result together, so that it is written line by line.
        const STRIP: usize = 16;
        let count = rows.len();
        for first in (0..count).step_by(STRIP) {
            let strip = STRIP.min(count - first);
            let from: [&[f32]; STRIP] =
                std::array::from_fn(|i| self.row(rows.start + first + i.min(strip - 1)));
            for j in 0..self.dim {
                let out = &mut out[j * count + first..][..strip];
                for (out, row) in out.iter_mut().zip(&from) {
                    *out = row[j];
                }
            }
        }
    }

    /// Writes `[rows.len(), dim]`, some rows next to each other.
    pub fn gather(&self, rows: Range<usize>, out: &mut [f32]) {
        for (row, out) in rows.zip(out.chunks_exact_mut(self.dim)) {
            out.copy_from_slice(self.row(row));
        }
    }
}

/// An exclusive operand that tasks write in interleaved but disjoint pieces.
pub(super) struct Shared<'a> {
    ptr: *mut f32,
    len: usize,
    memory: PhantomData<&'a mut [f32]>,
}

// SAFETY: a `Shared` is a `&mut [f32]` whose disjoint parts go to several threads, as with `split_at_mut`.
unsafe impl Send for Shared<'_> {}
// SAFETY: as above; `piece` demands that parts do not overlap.
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    pub fn new(slice: &'a mut [f32]) -> Self {
        Shared { ptr: slice.as_mut_ptr(), len: slice.len(), memory: PhantomData }
    }

    /// The elements `start..start + len`.
    ///
    /// # Safety
    /// No two live pieces overlap, on any thread.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn piece(&self, start: usize, len: usize) -> &mut [f32] {
        assert!(start + len <= self.len, "a piece lies inside its operand");
        // SAFETY: inside the slice this was made from; exclusive by the contract of this function.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(start), len) }
    }
}

//! One head inside `[batch, seq, heads, head_dim]`.

use std::marker::PhantomData;
use std::ops::Range;

#[cfg(target_arch = "x86_64")]
use crate::backend::cpu::dots::Source;
use crate::backend::cpu::float::{Float, cast, workplace_len};
use crate::backend::cpu::gemm::Matrix;

/// Rows of one head: `seq` rows of `dim` elements, `stride` elements apart.
#[derive(Clone, Copy)]
pub(super) struct Head<'a, T> {
    data: &'a [T],
    stride: usize,
    dim: usize,
}

impl<'a, T: Float> Head<'a, T> {
    pub fn new(x: &'a [T], [seq, heads, dim]: [usize; 3], batch: usize, head: usize) -> Self {
        let stride = heads * dim;
        let first = batch * seq * stride + head * dim;
        Head { data: &x[first..first + (seq - 1) * stride + dim], stride, dim }
    }

    /// All rows, as they lie in the tensor.
    #[cfg(target_arch = "x86_64")]
    pub fn source(&self) -> Source<'a, T> {
        let count = self.data.len().div_ceil(self.stride);
        Source { data: self.data, stride: self.stride, count, width: self.dim }
    }

    pub fn row(&self, row: usize) -> &'a [T] {
        &self.data[row * self.stride..][..self.dim]
    }

    /// Writes `[dim, rows.len()]`, the transpose of some rows.
    pub fn transpose(&self, rows: Range<usize>, out: &mut [f32]) {
        // Rows that fill one cache line of the result together, so that it is written line by line.
        const STRIP: usize = 16;
        let count = rows.len();
        for first in (0..count).step_by(STRIP) {
            let strip = STRIP.min(count - first);
            let from: [&[T]; STRIP] =
                std::array::from_fn(|i| self.row(rows.start + first + i.min(strip - 1)));
            for j in 0..self.dim {
                let out = &mut out[j * count + first..][..strip];
                for (out, row) in out.iter_mut().zip(&from) {
                    *out = row[j].widen();
                }
            }
        }
    }

    /// Writes `[rows.len(), dim]`, some rows next to each other.
    pub fn gather(&self, rows: Range<usize>, out: &mut [f32]) {
        for (row, out) in rows.zip(out.chunks_exact_mut(self.dim)) {
            cast(self.row(row), out);
        }
    }
}

/// The rows of one head in f32: where they are, or else gathered.
pub(super) struct WideRows<'a> {
    in_place: Option<(&'a [f32], usize)>,
    gathered: &'a mut [f32],
    dim: usize,
}

impl<'a> WideRows<'a> {
    /// The elements of `gathered` that heads of `len` elements of type `T` need.
    pub fn scratch<T: Float>(len: usize) -> usize {
        workplace_len::<T>(len)
    }

    /// Rows of `dim` elements, none yet.
    pub fn new(gathered: &'a mut [f32], dim: usize) -> Self {
        WideRows { in_place: None, gathered, dim }
    }

    /// Turns to the rows of `head`.
    pub fn turn_to<T: Float>(&mut self, head: Head<'a, T>) {
        self.in_place = T::in_place(head.data).map(|data| (data, head.stride));
        head.gather(0..self.gathered.len() / self.dim, self.gathered);
    }

    /// The rows from `first` on.
    pub fn from(&self, first: usize) -> Matrix<'_> {
        let (data, stride) = self.in_place.unwrap_or((self.gathered, self.dim));
        Matrix::rows(&data[first * stride..], stride)
    }
}

/// An exclusive operand that tasks write in interleaved but disjoint pieces.
pub(super) struct Shared<'a, T> {
    ptr: *mut T,
    len: usize,
    memory: PhantomData<&'a mut [T]>,
}

// SAFETY: a `Shared` is a `&mut [T]` whose disjoint parts go to several threads, as with `split_at_mut`.
unsafe impl<T: Float> Send for Shared<'_, T> {}
// SAFETY: as above; `piece` demands that parts do not overlap.
unsafe impl<T: Float> Sync for Shared<'_, T> {}

impl<'a, T: Float> Shared<'a, T> {
    pub fn new(slice: &'a mut [T]) -> Self {
        Shared { ptr: slice.as_mut_ptr(), len: slice.len(), memory: PhantomData }
    }

    /// The elements `start..start + len`.
    ///
    /// # Safety
    /// No two live pieces overlap, on any thread.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn piece(&self, start: usize, len: usize) -> &mut [T] {
        assert!(start + len <= self.len, "a piece lies inside its operand");
        // SAFETY: inside the slice this was made from; exclusive by the contract of this function.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(start), len) }
    }
}

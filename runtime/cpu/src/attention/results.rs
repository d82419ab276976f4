//! Operands that tasks write in disjoint pieces.

use std::marker::PhantomData;

use crate::float::Float;
use crate::simd::dispatch;
use meshwright_backend::{DType, SequenceLayout, ViewMut};

/// An exclusive operand that tasks write in interleaved but disjoint pieces.
pub(super) struct InterleavedOutput<'a, T> {
    ptr: *mut T,
    len: usize,
    memory: PhantomData<&'a mut [T]>,
}

// SAFETY: a `Shared` is a `&mut [T]` whose disjoint parts go to several threads, as with `split_at_mut`.
unsafe impl<T: Send> Send for InterleavedOutput<'_, T> {}
// SAFETY: as above; `piece` demands that parts do not overlap.
unsafe impl<T: Send> Sync for InterleavedOutput<'_, T> {}

impl<'a, T> InterleavedOutput<'a, T> {
    pub fn new(slice: &'a mut [T]) -> Self {
        InterleavedOutput { ptr: slice.as_mut_ptr(), len: slice.len(), memory: PhantomData }
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

/// A result `[batch, positions, heads, dim]` of the dtype `T` of the operands, or f32.
pub(super) struct Results<'a, T> {
    elements: Elements<'a, T>,
    pitch: usize,
    heads: usize,
    dim: usize,
    accumulate: bool,
}

enum Elements<'a, T> {
    Rounded(InterleavedOutput<'a, T>),
    Wide(InterleavedOutput<'a, f32>),
}

impl<'a, T: Float> Results<'a, T> {
    /// Creates a result whose rows are written, or accumulated if `accumulate`.
    pub fn new(
        out: ViewMut<'a>,
        layout: SequenceLayout,
        [heads, dim]: [usize; 2],
        accumulate: bool,
    ) -> Self {
        let elements = match out.dtype() {
            dtype if dtype == T::DTYPE => {
                Elements::Rounded(InterleavedOutput::new(out.into_typed()))
            }
            DType::F32 => Elements::Wide(InterleavedOutput::new(out.into_typed())),
            dtype => panic!("attention of {} has no results in {}", T::DTYPE.name(), dtype.name()),
        };
        Results { elements, pitch: layout.pitch, heads, dim, accumulate }
    }

    /// Writes or adds `row * factor`.
    ///
    /// # Safety
    /// No other thread uses this row at the same time.
    pub unsafe fn put_row(&self, [sample, position, head]: [usize; 3], row: &[f32], factor: f32) {
        let at = ((sample * self.pitch + position) * self.heads + head) * self.dim;
        match &self.elements {
            // SAFETY: the piece is dropped before this function returns; else as the caller promises.
            Elements::Rounded(out) => {
                write_row(row, factor, self.accumulate, unsafe { out.piece(at, self.dim) })
            }
            // SAFETY: as above.
            Elements::Wide(out) => {
                write_row(row, factor, self.accumulate, unsafe { out.piece(at, self.dim) })
            }
        }
    }
}

dispatch! {
    fn write_row<const FMA: bool, T: Float>(row: &[f32], factor: f32, accumulate: bool, out: &mut [T]) {
        if accumulate {
            for (out, x) in out.iter_mut().zip(row) {
                *out = T::narrow_from_f32(out.widen_to_f32() + x * factor);
            }
        } else {
            for (out, x) in out.iter_mut().zip(row) {
                *out = T::narrow_from_f32(x * factor);
            }
        }
    }
}

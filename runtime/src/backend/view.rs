//! Borrowed stretches of typed memory, the form in which kernels and collectives take their operands.

use std::marker::PhantomData;
use std::ops::Range;

use super::{DType, Element};

/// A shared stretch of elements of one dtype.
#[derive(Clone, Copy)]
pub struct View<'a> {
    ptr: *const u8,
    len: usize,
    dtype: DType,
    memory: PhantomData<&'a [u8]>,
}

/// An exclusive stretch of elements of one dtype.
pub struct ViewMut<'a> {
    ptr: *mut u8,
    len: usize,
    dtype: DType,
    memory: PhantomData<&'a mut [u8]>,
}

// SAFETY: a `View` is a `&[T]` and a `ViewMut` a `&mut [T]` with the element type moved to run time; every
// `Element` is `Send + Sync`.
unsafe impl Send for View<'_> {}
// SAFETY: as above.
unsafe impl Sync for View<'_> {}
// SAFETY: as above.
unsafe impl Send for ViewMut<'_> {}
// SAFETY: as above.
unsafe impl Sync for ViewMut<'_> {}

impl<'a, T: Element> From<&'a [T]> for View<'a> {
    fn from(slice: &'a [T]) -> Self {
        View { ptr: slice.as_ptr().cast(), len: slice.len(), dtype: T::DTYPE, memory: PhantomData }
    }
}

impl<'a, T: Element> From<&'a mut [T]> for ViewMut<'a> {
    fn from(slice: &'a mut [T]) -> Self {
        ViewMut {
            ptr: slice.as_mut_ptr().cast(),
            len: slice.len(),
            dtype: T::DTYPE,
            memory: PhantomData,
        }
    }
}

impl<'a> View<'a> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The elements of `range`.
    ///
    /// # Panics
    /// When `range` does not lie inside: a fault of the calling code.
    pub fn slice(&self, range: Range<usize>) -> View<'a> {
        assert!(range.start <= range.end && range.end <= self.len, "a run lies inside its view");
        // SAFETY: the run lies inside the elements of the view.
        let ptr = unsafe { self.ptr.add(range.start * self.dtype.bytes()) };
        View { ptr, len: range.len(), dtype: self.dtype, memory: PhantomData }
    }

    /// The elements as bytes.
    pub fn bytes(&self) -> &'a [u8] {
        // SAFETY: made from a `&'a [T]` of `len` elements of `dtype`, and every `Element` is plain old data.
        unsafe { std::slice::from_raw_parts(self.ptr, self.len * self.dtype.bytes()) }
    }

    /// The elements as `T`.
    ///
    /// # Panics
    /// When `T` is not the dtype of the view: a fault of the calling kernel, never of user input.
    pub fn typed<T: Element>(&self) -> &'a [T] {
        assert_eq!(self.dtype, T::DTYPE, "a view was read as another dtype");
        // SAFETY: made from a `&'a [T]` of `len` elements, as the dtype shows.
        unsafe { std::slice::from_raw_parts(self.ptr.cast(), self.len) }
    }
}

impl<'a> ViewMut<'a> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// A shared view of the same elements.
    pub fn as_view(&self) -> View<'_> {
        View { ptr: self.ptr, len: self.len, dtype: self.dtype, memory: PhantomData }
    }

    /// The same elements, borrowed for a shorter time.
    pub fn reborrow(&mut self) -> ViewMut<'_> {
        ViewMut { ptr: self.ptr, len: self.len, dtype: self.dtype, memory: PhantomData }
    }

    /// The elements of `range`.
    ///
    /// # Panics
    /// When `range` does not lie inside: a fault of the calling code.
    pub fn slice(&mut self, range: Range<usize>) -> ViewMut<'_> {
        self.reborrow().into_slice(range)
    }

    /// [`slice`](Self::slice), for as long as this view would have lived.
    pub fn into_slice(self, range: Range<usize>) -> ViewMut<'a> {
        assert!(range.start <= range.end && range.end <= self.len, "a run lies inside its view");
        // SAFETY: the run lies inside the elements of the view.
        let ptr = unsafe { self.ptr.add(range.start * self.dtype.bytes()) };
        ViewMut { ptr, len: range.len(), dtype: self.dtype, memory: PhantomData }
    }

    /// The elements as bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: made from a `&'a mut [T]` of `len` elements, reborrowed here; plain old data.
        unsafe { std::slice::from_raw_parts_mut(self.ptr, self.len * self.dtype.bytes()) }
    }

    /// The elements as `T`.
    ///
    /// # Panics
    /// When `T` is not the dtype of the view: a fault of the calling kernel, never of user input.
    pub fn typed<T: Element>(&mut self) -> &mut [T] {
        assert_eq!(self.dtype, T::DTYPE, "a view was written as another dtype");
        // SAFETY: made from a `&'a mut [T]` of `len` elements, reborrowed here.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.cast(), self.len) }
    }
}

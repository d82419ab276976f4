//! Borrowed slices of typed memory, the operands of kernels and collectives.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use super::{Bytes, DType, Device, Element, StreamKind};

/// A shared slice of elements of one dtype.
#[derive(Clone, Copy)]
pub struct View<'a> {
    ptr: *const u8,
    len: usize,
    dtype: DType,
    device: Option<&'a Arc<dyn Device>>,
    memory: PhantomData<&'a [u8]>,
}

/// An exclusive slice of elements of one dtype.
pub struct ViewMut<'a> {
    ptr: *mut u8,
    len: usize,
    dtype: DType,
    device: Option<&'a Arc<dyn Device>>,
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
        View {
            ptr: slice.as_ptr().cast(),
            len: slice.len(),
            dtype: T::DTYPE,
            device: None,
            memory: PhantomData,
        }
    }
}

impl<'a, T: Element> From<&'a mut [T]> for ViewMut<'a> {
    fn from(slice: &'a mut [T]) -> Self {
        ViewMut {
            ptr: slice.as_mut_ptr().cast(),
            len: slice.len(),
            dtype: T::DTYPE,
            device: None,
            memory: PhantomData,
        }
    }
}

impl<'a> View<'a> {
    /// Creates a view of `len` elements at `ptr`, in memory of `device` or of the host.
    ///
    /// # Safety
    /// As for a `&'a [T]` of them, read by the device or by the host.
    pub(super) unsafe fn from_raw(
        ptr: *const u8,
        len: usize,
        dtype: DType,
        device: Option<&'a Arc<dyn Device>>,
    ) -> View<'a> {
        View { ptr, len, dtype, device, memory: PhantomData }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the size in bytes.
    pub fn byte_len(&self) -> usize {
        self.len * self.dtype.bytes()
    }

    /// Returns the elements of `range`.
    ///
    /// # Panics
    /// When `range` is out of bounds: a bug of the caller.
    pub fn slice(&self, range: Range<usize>) -> View<'a> {
        assert!(range.start <= range.end && range.end <= self.len, "a slice is inside its view");
        // `add` is only defined inside host allocations, not for device addresses.
        let ptr = self.ptr.wrapping_add(range.start * self.dtype.bytes());
        View { ptr, len: range.len(), dtype: self.dtype, device: self.device, memory: PhantomData }
    }

    /// Returns the device that holds the elements; `None` for host memory.
    pub fn device(&self) -> Option<&'a Arc<dyn Device>> {
        self.device.filter(|device| !device.stands_for_host())
    }

    /// Returns the address of the elements, in host or device memory.
    pub fn address(&self) -> *const u8 {
        self.ptr
    }

    /// Copies the elements to the host; waits for the device if they are on one.
    ///
    /// # Panics
    /// When `out` has another length, or `T` is not the dtype: a bug of the caller.
    pub fn read<T: Element>(&self, out: &mut [T]) {
        assert!(self.dtype == T::DTYPE && self.len == out.len(), "a view was read as another one");
        match self.device {
            None => out.copy_from_slice(self.typed()),
            // SAFETY: the view is of live memory of the device.
            Some(device) => unsafe { device.download(self.ptr, bytemuck::cast_slice_mut(out)) },
        }
    }

    /// Returns the elements on the host: borrowed if they are in host memory, else a [copy](Self::to_vec).
    pub fn on_host<T: Element>(&self) -> Cow<'a, [T]> {
        match self.device {
            None => Cow::Borrowed(self.typed()),
            Some(_) => Cow::Owned(self.to_vec()),
        }
    }

    /// Returns a copy of the elements on the host. As [`read`](Self::read).
    pub fn to_vec<T: Element>(&self) -> Vec<T> {
        let mut values = vec![T::zeroed(); self.len];
        // Zeros take no memory before they are written.
        if self.device.is_none_or(|device| !device.reads_as_zeros(self.ptr, self.byte_len())) {
            self.read(&mut values);
        }
        values
    }

    /// Returns the elements as bytes of host memory.
    ///
    /// # Panics
    /// When they are on a device.
    pub fn bytes(&self) -> &'a [u8] {
        // SAFETY: made from a `&'a [T]` of `len` elements of `dtype`, and every `Element` is plain old data.
        unsafe { std::slice::from_raw_parts(self.host_memory(), self.len * self.dtype.bytes()) }
    }

    /// Returns true if the elements are in host memory, which large buffers of a dry run are not.
    #[doc(hidden)]
    pub fn has_host_memory(&self) -> bool {
        self.device.is_none()
    }

    /// Returns the host memory of the elements.
    fn host_memory(&self) -> *const u8 {
        let Some(device) = self.device else { return self.ptr };
        assert!(device.stands_for_host(), "device memory was used as host memory");
        if self.len == 0 {
            return self.ptr;
        }
        let Some(memory) = device.host_memory(self.ptr) else {
            let bytes = Bytes(self.byte_len() as f64);
            panic!(
                "a dry run has no memory for a slice of {bytes}: larger operands are read by `View::read`, `to_vec` or \
                 kernels of the backend"
            );
        };
        memory.as_ptr()
    }

    /// Returns the elements as `T`.
    ///
    /// # Panics
    /// When `T` is not the dtype of the view, or the elements are on a device: a bug of the kernel, never of
    /// user input.
    pub fn typed<T: Element>(&self) -> &'a [T] {
        assert_eq!(self.dtype, T::DTYPE, "a view was read as another dtype");
        // SAFETY: made from a `&'a [T]` of `len` elements, as the dtype shows.
        unsafe { std::slice::from_raw_parts(self.host_memory().cast(), self.len) }
    }
}

impl<'a> ViewMut<'a> {
    /// Creates a view of `len` elements at `ptr`, in memory of `device` or of the host.
    ///
    /// # Safety
    /// As for a `&'a mut [T]` of them, used by the device or by the host.
    pub(super) unsafe fn from_raw(
        ptr: *mut u8,
        len: usize,
        dtype: DType,
        device: Option<&'a Arc<dyn Device>>,
    ) -> ViewMut<'a> {
        ViewMut { ptr, len, dtype, device, memory: PhantomData }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the size in bytes.
    pub fn byte_len(&self) -> usize {
        self.len * self.dtype.bytes()
    }

    /// Returns a shared view of the same elements.
    pub fn as_view(&self) -> View<'_> {
        View {
            ptr: self.ptr,
            len: self.len,
            dtype: self.dtype,
            device: self.device,
            memory: PhantomData,
        }
    }

    /// Reborrows the view for a shorter lifetime.
    pub fn reborrow(&mut self) -> ViewMut<'_> {
        ViewMut {
            ptr: self.ptr,
            len: self.len,
            dtype: self.dtype,
            device: self.device,
            memory: PhantomData,
        }
    }

    /// Returns the elements of `range`.
    ///
    /// # Panics
    /// When `range` is out of bounds: a bug of the caller.
    pub fn slice(&mut self, range: Range<usize>) -> ViewMut<'_> {
        self.reborrow().into_slice(range)
    }

    /// Returns the elements of `range` with the lifetime of this view, like [`slice`](Self::slice).
    pub fn into_slice(self, range: Range<usize>) -> ViewMut<'a> {
        assert!(range.start <= range.end && range.end <= self.len, "a slice is inside its view");
        // `add` is only defined inside host allocations, not for device addresses.
        let ptr = self.ptr.wrapping_add(range.start * self.dtype.bytes());
        ViewMut {
            ptr,
            len: range.len(),
            dtype: self.dtype,
            device: self.device,
            memory: PhantomData,
        }
    }

    /// Returns the elements of each range.
    ///
    /// # Panics
    /// When a range is out of bounds, or two of them overlap: a bug of the caller.
    pub fn into_disjoint<const N: usize>(self, ranges: [Range<usize>; N]) -> [ViewMut<'a>; N] {
        for (i, range) in ranges.iter().enumerate() {
            let apart = |other: &Range<usize>| range.end <= other.start || other.end <= range.start;
            assert!(ranges[..i].iter().all(apart), "exclusive slices do not overlap");
        }
        // No element is in two of the views, and this one is gone.
        ranges.map(|range| ViewMut { ..self }.into_slice(range))
    }

    /// Returns the device that holds the elements; `None` for host memory.
    pub fn device(&self) -> Option<&'a Arc<dyn Device>> {
        self.device.filter(|device| !device.stands_for_host())
    }

    /// Returns the address of the elements, in host or device memory.
    pub fn address(&self) -> *mut u8 {
        self.ptr
    }

    /// Writes values of the host to host or device memory.
    ///
    /// # Panics
    /// When `values` has another length, or `T` is not the dtype: a bug of the caller.
    pub fn write<T: Element>(&mut self, values: &[T]) {
        assert!(
            self.dtype == T::DTYPE && self.len == values.len(),
            "a view was written as another one"
        );
        match self.device {
            None => self.typed().copy_from_slice(values),
            // SAFETY: the view is of live memory of the device, and is exclusive.
            Some(device) => unsafe { device.upload(self.ptr, bytemuck::cast_slice(values)) },
        }
    }

    /// Sets every byte to zero.
    pub fn clear(&mut self) {
        match self.device {
            None => self.bytes_mut().fill(0),
            // SAFETY: as in `write`.
            Some(device) => unsafe {
                device.zero(StreamKind::Compute, self.ptr, self.len * self.dtype.bytes());
            },
        }
    }

    /// Returns the elements as bytes of host memory.
    ///
    /// # Panics
    /// When they are on a device.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let (memory, bytes) = (self.as_view().host_memory().cast_mut(), self.byte_len());
        // SAFETY: made from a `&'a mut [T]` of `len` elements, reborrowed here; plain old data.
        unsafe { std::slice::from_raw_parts_mut(memory, bytes) }
    }

    /// Returns the elements as `T`.
    ///
    /// # Panics
    /// As [`View::typed`].
    pub fn typed<T: Element>(&mut self) -> &mut [T] {
        self.reborrow().into_typed()
    }

    /// Returns the elements as `T` with the lifetime of this view, like [`typed`](Self::typed).
    pub fn into_typed<T: Element>(self) -> &'a mut [T] {
        assert_eq!(self.dtype, T::DTYPE, "a view was written as another dtype");
        let memory = self.as_view().host_memory().cast_mut();
        // SAFETY: `len` initialized elements of host memory, as checked by the dtype, exclusive for `'a`.
        unsafe { std::slice::from_raw_parts_mut(memory.cast(), self.len) }
    }
}

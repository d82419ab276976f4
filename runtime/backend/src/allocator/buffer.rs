//! Owned buffers, whose memory returns to their allocator when they are dropped.

use std::sync::Arc;

use super::CachingAllocator;
use crate::block::MemoryBlock;
use crate::{Category, DType, Element, View, ViewMut};

/// An owned, 64-byte aligned array of elements of one dtype.
pub struct Buffer {
    block: MemoryBlock,
    len: usize,
    dtype: DType,
    category: Category,
    allocator: Arc<CachingAllocator>,
    /// Sequence number of the allocation, from 1.
    number: u64,
}

impl Buffer {
    /// Wraps `block`, the `number`-th allocation of `allocator`.
    pub(super) fn new(
        block: MemoryBlock,
        len: usize,
        dtype: DType,
        category: Category,
        allocator: Arc<CachingAllocator>,
        number: u64,
    ) -> Buffer {
        Buffer { block, len, dtype, category, allocator, number }
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

    /// Returns the allocator of this buffer, which also allocates scratch of the same rank.
    pub fn allocator(&self) -> &Arc<CachingAllocator> {
        &self.allocator
    }

    /// Borrows all elements.
    pub fn view(&self) -> View<'_> {
        // SAFETY: the block holds at least `len` elements of the dtype, aligned to 64 bytes, while the buffer lives.
        unsafe { View::from_raw(self.block.as_ptr(), self.len, self.dtype, self.block.device()) }
    }

    /// Borrows all elements exclusively.
    pub fn view_mut(&mut self) -> ViewMut<'_> {
        // SAFETY: as in `view`, and `&mut self` is exclusive.
        unsafe { ViewMut::from_raw(self.block.as_ptr(), self.len, self.dtype, self.block.device()) }
    }

    /// Borrows all elements as `T`.
    ///
    /// # Panics
    /// When `T` is not the dtype of the buffer, or the buffer is on a device: a bug of the caller, never of user
    /// input.
    pub fn typed<T: Element>(&self) -> &[T] {
        self.view().typed()
    }

    /// Borrows all elements as `T`, exclusively.
    ///
    /// # Panics
    /// When `T` is not the dtype of the buffer, or the buffer is on a device: a bug of the caller, never of user
    /// input.
    pub fn typed_mut<T: Element>(&mut self) -> &mut [T] {
        self.view_mut().into_typed()
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} x {}, {})", self.len, self.dtype, self.category.name())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let block = std::mem::replace(&mut self.block, MemoryBlock::empty());
        self.allocator.release(block, self.category, self.number);
    }
}

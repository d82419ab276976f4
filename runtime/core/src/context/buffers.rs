//! Buffers of a rank: allocation by category, copies, and transfers between host and device.

use std::sync::Arc;

use meshwright_backend::{Buffer, Category, DType, Element, View};

use super::rank::Rank;

impl Rank {
    /// Allocates `len` elements of an activation, in the compute dtype.
    pub(crate) fn alloc_activation(&self, len: usize) -> Buffer {
        self.allocator().alloc(self.compute_dtype(), len, Category::Activations)
    }

    /// Allocates `len` statistics, which are f32 for every compute dtype.
    pub(crate) fn alloc_statistics(&self, len: usize) -> Buffer {
        self.allocator().alloc(DType::F32, len, Category::Activations)
    }

    /// Allocates `len` zeros in f32, to accumulate a parameter's gradient in.
    pub(crate) fn alloc_zeros(&self, len: usize) -> Buffer {
        self.allocator().zeros(DType::F32, len, Category::Workspace)
    }

    /// Allocates `len` elements of scratch memory.
    pub(crate) fn alloc_scratch(&self, dtype: DType, len: usize) -> Buffer {
        self.allocator().alloc(dtype, len, Category::Workspace)
    }

    /// Returns the buffer itself if it has no other owner, else a copy.
    pub(crate) fn unshare(&self, shared: Arc<Buffer>) -> Buffer {
        Arc::try_unwrap(shared)
            .unwrap_or_else(|shared| self.copy_buffer(&shared, Category::Activations))
    }

    /// Copies a buffer; the copy is accounted as `category`.
    pub(crate) fn copy_buffer(&self, data: &Buffer, category: Category) -> Buffer {
        let mut copy = self.allocator().alloc(data.dtype(), data.len(), category);
        self.backend().cast(data.view(), copy.view_mut());
        copy
    }

    /// Makes values of the host readable by kernels: uploads them if there is a device.
    pub(crate) fn stage_values<'a, T: Element>(&self, values: &'a [T]) -> Staged<'a> {
        match self.allocator().device() {
            None => Staged::Host(values.into()),
            Some(_) => Staged::Device(self.allocator().copy_of(values, Category::Workspace)),
        }
    }

    /// Copies the elements of `data`, f32 or bf16, to the host.
    pub(crate) fn read(&self, data: View<'_>) -> Vec<f32> {
        if data.dtype() == DType::F32 {
            return data.to_vec();
        }
        let mut wide = self.alloc_scratch(DType::F32, data.len());
        self.backend().cast(data, wide.view_mut());
        wide.view().to_vec()
    }
}

/// Allocates `len` elements of an activation in the dtype of `other`.
pub fn alloc_like(other: &Buffer, len: usize) -> Buffer {
    other.allocator().alloc(other.dtype(), len, Category::Activations)
}

/// Host values that kernels can read.
pub(crate) enum Staged<'a> {
    Host(View<'a>),
    Device(Buffer),
}

impl Staged<'_> {
    pub(crate) fn view(&self) -> View<'_> {
        match self {
            Staged::Host(view) => *view,
            Staged::Device(buffer) => buffer.view(),
        }
    }
}

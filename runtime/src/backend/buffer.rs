//! Owned memory with a category.

use std::sync::Arc;

use super::block::Block;
use super::meter::MemoryMeter;
use super::{DType, Element, View, ViewMut};

/// What a buffer is for; peaks are reported per category.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// Model parameters.
    Parameters,
    /// Gradients of parameters.
    Gradients,
    /// Optimiser state.
    Optimizer,
    /// Values saved for, or travelling through, backward.
    Activations,
    /// What exists only to be sent or received: staging of collectives, and at higher ZeRO levels the gathered
    /// parameters of a unit in use and its gradient before the sum over ranks.
    Communication,
    /// Scratch of one kernel.
    Workspace,
    /// What waits in host memory for backward.
    Offloaded,
}

impl Category {
    /// Every category, in the order of reports.
    pub const ALL: [Category; 7] = [
        Category::Parameters,
        Category::Gradients,
        Category::Optimizer,
        Category::Activations,
        Category::Communication,
        Category::Workspace,
        Category::Offloaded,
    ];

    /// The name used in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Category::Parameters => "parameters",
            Category::Gradients => "gradients",
            Category::Optimizer => "optimizer",
            Category::Activations => "activations",
            Category::Communication => "communication",
            Category::Workspace => "workspace",
            Category::Offloaded => "offloaded",
        }
    }
}

/// An owned, 64-byte aligned run of elements of one dtype.
pub struct Buffer {
    block: Block,
    len: usize,
    dtype: DType,
    category: Category,
    meter: Arc<MemoryMeter>,
    /// How many buffers the meter had handed out with this one.
    number: u64,
}

impl Buffer {
    /// `block`, the `number`-th that `meter` has counted, as elements.
    pub(super) fn new(
        block: Block,
        len: usize,
        dtype: DType,
        category: Category,
        meter: Arc<MemoryMeter>,
        number: u64,
    ) -> Buffer {
        Buffer { block, len, dtype, category, meter, number }
    }

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

    /// The meter that counts this buffer, from which scratch of the same rank can be drawn.
    pub fn meter(&self) -> &Arc<MemoryMeter> {
        &self.meter
    }

    /// All elements, shared.
    pub fn view(&self) -> View<'_> {
        // SAFETY: the block holds at least `len` elements of the dtype, aligned to 64 bytes, for as long as the buffer.
        unsafe { View::from_raw(self.block.as_ptr(), self.len, self.dtype, self.block.device()) }
    }

    /// All elements, exclusive.
    pub fn view_mut(&mut self) -> ViewMut<'_> {
        // SAFETY: as in `view`, and `&mut self` is exclusive.
        unsafe { ViewMut::from_raw(self.block.as_ptr(), self.len, self.dtype, self.block.device()) }
    }

    /// All elements as `T`.
    ///
    /// # Panics
    /// When `T` is not the dtype of the buffer, or the buffer is on a device: a fault of the calling code, never of
    /// user input.
    pub fn typed<T: Element>(&self) -> &[T] {
        self.view().typed()
    }

    /// All elements as `T`, exclusive.
    ///
    /// # Panics
    /// When `T` is not the dtype of the buffer, or the buffer is on a device: a fault of the calling code, never of
    /// user input.
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
        let block = std::mem::replace(&mut self.block, Block::empty());
        self.meter.take_back(block, self.category, self.number);
    }
}

//! Owned memory with a category, drawn from a pool so that a training step allocates nothing anew.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::block::{ALIGN, Block};
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
    /// Staging of collectives.
    Communication,
    /// Scratch of one kernel.
    Workspace,
}

impl Category {
    /// Every category, in the order of reports.
    pub const ALL: [Category; 6] = [
        Category::Parameters,
        Category::Gradients,
        Category::Optimizer,
        Category::Activations,
        Category::Communication,
        Category::Workspace,
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
        }
    }
}

/// Counts the bytes of one rank by category, and keeps freed blocks for the next buffer of their size.
#[derive(Debug, Default)]
pub struct MemoryMeter {
    state: Mutex<MeterState>,
}

#[derive(Debug, Default)]
struct MeterState {
    live: [usize; Category::ALL.len()],
    peak: [usize; Category::ALL.len()],
    total_peak: usize,
    free: HashMap<usize, Vec<Block>>,
}

impl MemoryMeter {
    /// A meter with nothing counted.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A buffer of `len` elements whose contents are unspecified (but initialised).
    pub fn alloc(self: &Arc<Self>, dtype: DType, len: usize, category: Category) -> Buffer {
        let bytes = (len * dtype.bytes()).next_multiple_of(ALIGN);
        let block = self.lock().take(bytes, category).unwrap_or_else(|| Block::new(bytes));
        Buffer { block, len, dtype, category, meter: Arc::clone(self) }
    }

    /// A buffer of `len` zeros.
    pub fn zeros(self: &Arc<Self>, dtype: DType, len: usize, category: Category) -> Buffer {
        let mut buffer = self.alloc(dtype, len, category);
        buffer.view_mut().bytes_mut().fill(0);
        buffer
    }

    /// A buffer that holds a copy of `values`.
    pub fn copy_of<T: Element>(self: &Arc<Self>, values: &[T], category: Category) -> Buffer {
        let mut buffer = self.alloc(T::DTYPE, values.len(), category);
        buffer.typed_mut::<T>().copy_from_slice(values);
        buffer
    }

    /// Bytes in use now, by category.
    pub fn live(&self) -> impl Iterator<Item = (Category, usize)> {
        let live = self.lock().live;
        Category::ALL.into_iter().zip(live)
    }

    /// Most bytes in use at any one time, by category.
    pub fn peak(&self) -> impl Iterator<Item = (Category, usize)> {
        let peak = self.lock().peak;
        Category::ALL.into_iter().zip(peak)
    }

    /// Most bytes in use at any one time, all categories together.
    pub fn total_peak(&self) -> usize {
        self.lock().total_peak
    }

    fn lock(&self) -> MutexGuard<'_, MeterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MeterState {
    fn take(&mut self, bytes: usize, category: Category) -> Option<Block> {
        let slot = category as usize;
        self.live[slot] += bytes;
        self.peak[slot] = self.peak[slot].max(self.live[slot]);
        self.total_peak = self.total_peak.max(self.live.iter().sum());
        self.free.get_mut(&bytes)?.pop()
    }
}

/// An owned, 64-byte aligned run of elements of one dtype.
pub struct Buffer {
    block: Block,
    len: usize,
    dtype: DType,
    category: Category,
    meter: Arc<MemoryMeter>,
}

impl Buffer {
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
        match self.dtype {
            DType::F32 => View::from(self.typed::<f32>()),
            DType::U32 => View::from(self.typed::<u32>()),
        }
    }

    /// All elements, exclusive.
    pub fn view_mut(&mut self) -> ViewMut<'_> {
        match self.dtype {
            DType::F32 => ViewMut::from(self.typed_mut::<f32>()),
            DType::U32 => ViewMut::from(self.typed_mut::<u32>()),
        }
    }

    /// All elements as `T`.
    ///
    /// # Panics
    /// When `T` is not the dtype of the buffer: a fault of the calling code, never of user input.
    pub fn typed<T: Element>(&self) -> &[T] {
        assert_eq!(self.dtype, T::DTYPE, "a buffer was read as another dtype");
        // SAFETY: the block holds at least `len` initialised elements of `T`, aligned to 64 bytes.
        unsafe { std::slice::from_raw_parts(self.block.as_ptr().cast(), self.len) }
    }

    /// All elements as `T`, exclusive.
    ///
    /// # Panics
    /// When `T` is not the dtype of the buffer: a fault of the calling code, never of user input.
    pub fn typed_mut<T: Element>(&mut self) -> &mut [T] {
        assert_eq!(self.dtype, T::DTYPE, "a buffer was written as another dtype");
        // SAFETY: as in `typed`, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.block.as_ptr().cast(), self.len) }
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
        let mut state = self.meter.lock();
        state.live[self.category as usize] -= block.len();
        state.free.entry(block.len()).or_default().push(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_count_live_bytes_per_category_and_blocks_are_reused() {
        let meter = MemoryMeter::new();
        let first = meter.zeros(DType::F32, 1000, Category::Activations);
        let address = first.typed::<f32>().as_ptr();
        drop(first);
        let second = meter.alloc(DType::F32, 1000, Category::Gradients);
        assert_eq!(second.typed::<f32>().as_ptr(), address);
        let peak: HashMap<_, _> = meter.peak().collect();
        assert_eq!(peak[&Category::Activations], 4032);
        assert_eq!(peak[&Category::Gradients], 4032);
        assert_eq!(meter.total_peak(), 4032);
    }

    #[test]
    fn an_empty_buffer_is_usable() {
        let meter = MemoryMeter::new();
        assert!(meter.zeros(DType::U32, 0, Category::Workspace).typed::<u32>().is_empty());
    }
}

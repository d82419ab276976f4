//! The caching allocator of a rank: it accounts for memory by category, enforces a limit, and reuses freed blocks, so
//! that a training step allocates nothing from the system.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::block::{ALIGN, MemoryBlock, MemorySource};
use super::dry_run::DryRunDevice;
use super::{Category, DType, Device, Element, MemoryCache, OutOfMemory};

mod buffer;
mod pool;
mod private_pool;
#[cfg(test)]
mod tests;

pub use buffer::Buffer;
use pool::BlockPool;
use private_pool::PrivateBlocks;
pub(super) use private_pool::PrivatePool;

const OFFLOADED: usize = Category::Offloaded as usize;
const WORKSPACE: usize = Category::Workspace as usize;

/// A caching allocator with accounting by category: it keeps freed blocks for the next buffer of their size.
///
/// With a [limit](CachingAllocator::with_limit), live buffers never take more than the limit, and cached blocks are
/// freed as soon as both together would.
///
/// Memory that a device has taken [for kernels and libraries](Device::overhead_bytes) counts as workspace. It is read
/// at the next allocation.
#[derive(Debug)]
pub struct CachingAllocator {
    limit: usize,
    source: MemorySource,
    /// The allocator of page-locked host memory for offloading, on a device.
    offloaded: Option<Arc<CachingAllocator>>,
    state: Mutex<AllocatorState>,
}

/// An observer of the buffers of an allocator. A buffer is identified by its number, from 1; on a device, offloaded
/// buffers are numbered by themselves.
pub trait AllocationObserver: Send + Sync {
    /// Observes a new buffer.
    fn allocated(&self, number: u64, bytes: usize, category: Category);

    /// Observes that a buffer is freed.
    fn freed(&self, number: u64, bytes: usize, category: Category);
}

#[derive(Default)]
struct AllocatorState {
    live: [usize; Category::ALL.len()],
    peak: [usize; Category::ALL.len()],
    total_peak: usize,
    /// Number of buffers allocated so far.
    allocated: u64,
    free: BlockPool,
    private: Option<PrivateBlocks>,
    observer: Option<Arc<dyn AllocationObserver>>,
}

impl std::fmt::Debug for AllocatorState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AllocatorState").field("live", &self.live).finish_non_exhaustive()
    }
}

impl CachingAllocator {
    /// Creates an allocator of host memory without a limit.
    pub fn new() -> Arc<Self> {
        CachingAllocator::with_limit(usize::MAX)
    }

    /// Creates an allocator of host memory with at most `bytes` bytes in use at any time.
    pub fn with_limit(bytes: usize) -> Arc<Self> {
        CachingAllocator::on(None, bytes)
    }

    /// Creates an allocator with at most `bytes` bytes of `device` (`None` for the host) in use at any time.
    /// [Offloaded](Category::Offloaded) buffers of a device are in page-locked host memory and not part of the limit.
    pub fn on(device: Option<Arc<dyn Device>>, bytes: usize) -> Arc<Self> {
        match device {
            None => CachingAllocator::with_sources(MemorySource::Host, None, bytes),
            Some(device) => {
                let offloaded = MemorySource::PageLocked(Arc::clone(&device));
                CachingAllocator::with_sources(MemorySource::Device(device), Some(offloaded), bytes)
            }
        }
    }

    /// Creates an allocator for a [dry run](super::DryRunBackend) on the host or on `device`: it accounts for memory as
    /// others do, but takes none.
    #[doc(hidden)]
    pub fn for_dry_run(device: Option<Arc<dyn Device>>) -> Arc<Self> {
        let host = || MemorySource::DryRun(Arc::new(DryRunDevice::host()));
        let offloaded = device.as_ref().map(|_| host());
        let source = device.map_or_else(host, MemorySource::Device);
        CachingAllocator::with_sources(source, offloaded, usize::MAX)
    }

    /// Creates an allocator of at most `limit` bytes from `source`; `offloaded` has the memory for offloading if that
    /// is other memory.
    fn with_sources(
        source: MemorySource,
        offloaded: Option<MemorySource>,
        limit: usize,
    ) -> Arc<Self> {
        let offloaded =
            offloaded.map(|source| CachingAllocator::with_sources(source, None, usize::MAX));
        Arc::new(CachingAllocator { limit, source, offloaded, state: Mutex::default() })
    }

    /// Passes all buffers from now on to `observer`.
    #[doc(hidden)]
    pub fn observe(&self, observer: &Arc<dyn AllocationObserver>) {
        if let Some(offloaded) = &self.offloaded {
            offloaded.observe(observer);
        }
        self.lock_state().observer = Some(Arc::clone(observer));
    }

    /// Returns the device whose memory it allocates; `None` for the host.
    pub fn device(&self) -> Option<&Arc<dyn Device>> {
        match &self.source {
            MemorySource::Device(device) => Some(device),
            MemorySource::Host
            | MemorySource::PageLocked(_)
            | MemorySource::Reserved
            | MemorySource::DryRun(_) => None,
        }
    }

    /// Allocates a buffer of `len` elements whose contents are unspecified (but initialized).
    ///
    /// If that would exceed the limit, or the system has no more memory, the thread unwinds with an [`OutOfMemory`] as
    /// its payload and without a panic message; `launch` turns it into an error. The allocator
    /// is unchanged, and everything that the thread held is freed while it unwinds.
    pub fn alloc(self: &Arc<Self>, dtype: DType, len: usize, category: Category) -> Buffer {
        if let (Category::Offloaded, Some(offloaded)) = (category, &self.offloaded) {
            return offloaded.alloc(dtype, len, category);
        }
        let bytes = len.checked_mul(dtype.bytes()).and_then(|b| b.checked_next_multiple_of(ALIGN));
        let mut state = self.lock_state();
        let taken = state.take_block(bytes.unwrap_or(usize::MAX), category, self);
        let number = state.allocated;
        drop(state);
        match taken {
            Ok(block) => Buffer::new(block, len, dtype, category, Arc::clone(self), number),
            Err(error) => error.unwind(),
        }
    }

    /// Allocates a buffer of `len` zeros. Fails as [`alloc`](Self::alloc).
    pub fn zeros(self: &Arc<Self>, dtype: DType, len: usize, category: Category) -> Buffer {
        let mut buffer = self.alloc(dtype, len, category);
        // Small blocks of a dry run would take memory.
        if !matches!(self.source, MemorySource::DryRun(_)) {
            buffer.view_mut().clear();
        }
        buffer
    }

    /// Allocates a buffer that holds a copy of `values`. Fails as [`alloc`](Self::alloc).
    pub fn copy_of<T: Element>(self: &Arc<Self>, values: &[T], category: Category) -> Buffer {
        let mut buffer = self.alloc(T::DTYPE, values.len(), category);
        buffer.view_mut().write(values);
        buffer
    }

    /// Returns the bytes in use, by category.
    pub fn live(&self) -> impl Iterator<Item = (Category, usize)> {
        let mut live = self.lock_state().live_with(self.overhead_bytes());
        if let Some(offloaded) = &self.offloaded {
            live[OFFLOADED] = offloaded.lock_state().live[OFFLOADED];
        }
        Category::ALL.into_iter().zip(live)
    }

    /// Returns the peak of the bytes in use, by category.
    pub fn peak(&self) -> impl Iterator<Item = (Category, usize)> {
        let mut peak = self.lock_state().update_peaks(self.overhead_bytes()).peak;
        if let Some(offloaded) = &self.offloaded {
            peak[OFFLOADED] = offloaded.lock_state().peak[OFFLOADED];
        }
        Category::ALL.into_iter().zip(peak)
    }

    /// Returns the peak of the bytes in use of all categories together; on a device, of its memory.
    pub fn total_peak(&self) -> usize {
        self.lock_state().update_peaks(self.overhead_bytes()).total_peak
    }

    /// Reclaims the memory of the `number`-th allocated buffer.
    fn release(&self, block: MemoryBlock, category: Category, number: u64) {
        let mut state = self.lock_state();
        state.live[category as usize] -= block.len();
        if let Some(observer) = &state.observer {
            observer.freed(number, block.len(), category);
        }
        if matches!(self.source, MemorySource::DryRun(_)) && block.device().is_some() {
            // There is nothing to use again, and what was touched counts until it is freed.
            return;
        }
        match &mut state.private {
            Some(private) if private.may_use(number) => private.free.put_block(block),
            _ => state.free.put_block(block),
        }
    }

    fn overhead_bytes(&self) -> usize {
        self.device().map_or(0, |device| device.overhead_bytes())
    }

    fn lock_state(&self) -> MutexGuard<'_, AllocatorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryCache for CachingAllocator {
    fn available_bytes(&self) -> usize {
        let live: usize = self.lock_state().live_with(self.overhead_bytes()).iter().sum();
        self.limit.saturating_sub(live)
    }

    /// Frees all cached blocks, and the blocks of the private pool unless a capture is in progress.
    fn empty_cache(&self) {
        let mut state = self.lock_state();
        if state.private.as_ref().is_some_and(|private| !private.is_open) {
            state.dissolve_private_pool();
        }
        state.free.trim_to(0);
    }
}

impl AllocatorState {
    fn take_block(
        &mut self,
        bytes: usize,
        category: Category,
        allocator: &CachingAllocator,
    ) -> Result<MemoryBlock, OutOfMemory> {
        let limit = allocator.limit;
        let own = allocator.overhead_bytes();
        let total = self.live_with(own).iter().sum::<usize>();
        let wanted = total.saturating_add(bytes);
        let cached = match self.private.as_mut().filter(|private| private.is_open) {
            Some(private) => private.free.take_block(bytes).or_else(|| self.free.take_block(bytes)),
            None => self.free.take_block(bytes),
        };
        let block = match cached {
            Some(block) => Some(block),
            None if wanted > limit => None,
            None => self.new_block(bytes, limit - wanted, allocator),
        };
        let Some(block) = block else {
            let limit = (wanted > limit).then_some(limit);
            let live = self.live_with(own);
            return Err(OutOfMemory { category, requested: bytes, live, limit });
        };
        self.free.free_unused();
        self.live[category as usize] += bytes;
        self.allocated += 1;
        if let Some(observer) = &self.observer {
            observer.allocated(self.allocated, bytes, category);
        }
        self.update_peaks(own);
        Ok(block)
    }

    /// Returns the bytes in use by category, `own` bytes of the device included.
    fn live_with(&self, own: usize) -> [usize; Category::ALL.len()] {
        let mut live = self.live;
        live[WORKSPACE] += own;
        live
    }

    /// Raises the peaks to the bytes in use.
    fn update_peaks(&mut self, own: usize) -> &AllocatorState {
        let live = self.live_with(own);
        for (peak, live) in self.peak.iter_mut().zip(live) {
            *peak = live.max(*peak);
        }
        self.total_peak = self.total_peak.max(live.iter().sum());
        self
    }

    /// Allocates a block from the system, with at most `kept` cached bytes left: first in the pool, then, if memory is
    /// still short, in the private pool.
    fn new_block(
        &mut self,
        bytes: usize,
        kept: usize,
        allocator: &CachingAllocator,
    ) -> Option<MemoryBlock> {
        let private = self.private.as_ref().map_or(0, |private| private.free.bytes());
        if private <= kept {
            let block = self.free.allocate(bytes, kept - private, &allocator.source);
            if block.is_some() || private == 0 {
                return block;
            }
        }
        self.dissolve_private_pool();
        self.free.take_block(bytes).or_else(|| self.free.allocate(bytes, kept, &allocator.source))
    }
}

//! The memory of one rank: counted by category, kept within a budget, and drawn from a pool so that a training step
//! allocates nothing anew.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::block::{ALIGN, Block, Source};
use super::{Buffer, Category, DType, Device, Element, OutOfMemory};

const OFFLOADED: usize = Category::Offloaded as usize;
const WORKSPACE: usize = Category::Workspace as usize;

/// Counts the bytes of one rank by category, and keeps freed blocks for the next buffer of their size.
///
/// With a [limit](MemoryMeter::with_limit), live buffers never take more than that, and what is kept for reuse is
/// given back to the system as soon as the two together would.
///
/// What a device has taken [by itself](Device::own_bytes) is workspace in use. It is seen at the next allocation.
#[derive(Debug)]
pub struct MemoryMeter {
    limit: usize,
    source: Source,
    /// Of a device: counts what is offloaded to host memory.
    offloaded: Option<Arc<MemoryMeter>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    live: [usize; Category::ALL.len()],
    peak: [usize; Category::ALL.len()],
    total_peak: usize,
    free: Pool,
}

impl MemoryMeter {
    /// A meter with nothing counted, and as much memory as the system gives.
    pub fn new() -> Arc<Self> {
        MemoryMeter::with_limit(usize::MAX)
    }

    /// A meter with nothing counted, and at most `bytes` bytes in use at any one time.
    pub fn with_limit(bytes: usize) -> Arc<Self> {
        MemoryMeter::on(None, bytes)
    }

    /// A meter with nothing counted, and at most `bytes` bytes of `device` (none: of the host) in use at any one time.
    /// What is [offloaded](Category::Offloaded) from a device is page-locked memory of the host, and not of those bytes.
    pub fn on(device: Option<Arc<dyn Device>>, bytes: usize) -> Arc<Self> {
        let of = |source, offloaded| MemoryMeter {
            limit: bytes,
            source,
            offloaded,
            state: Mutex::default(),
        };
        Arc::new(match device {
            None => of(Source::Host, None),
            Some(device) => {
                let source = Source::PageLocked(Arc::clone(&device));
                let offloaded = MemoryMeter { limit: usize::MAX, ..of(source, None) };
                of(Source::Device(device), Some(Arc::new(offloaded)))
            }
        })
    }

    /// The device whose memory this is; none: the host's.
    pub fn device(&self) -> Option<&Arc<dyn Device>> {
        match &self.source {
            Source::Device(device) => Some(device),
            Source::Host | Source::PageLocked(_) => None,
        }
    }

    /// A buffer of `len` elements whose contents are unspecified (but initialised).
    ///
    /// Where that would exceed the limit, or the system has no more memory, the thread unwinds with an [`OutOfMemory`]
    /// as its payload and without a panic message; [`launch`](crate::comm::launch) makes an error of it. The meter is
    /// as it was before, and everything that the thread held is freed on its way.
    pub fn alloc(self: &Arc<Self>, dtype: DType, len: usize, category: Category) -> Buffer {
        if let (Category::Offloaded, Some(offloaded)) = (category, &self.offloaded) {
            return offloaded.alloc(dtype, len, category);
        }
        let bytes = len.checked_mul(dtype.bytes()).and_then(|b| b.checked_next_multiple_of(ALIGN));
        match self.lock().take(bytes.unwrap_or(usize::MAX), category, self) {
            Ok(block) => Buffer::new(block, len, dtype, category, Arc::clone(self)),
            Err(error) => error.unwind(),
        }
    }

    /// A buffer of `len` zeros. Fails as [`alloc`](Self::alloc).
    pub fn zeros(self: &Arc<Self>, dtype: DType, len: usize, category: Category) -> Buffer {
        let mut buffer = self.alloc(dtype, len, category);
        buffer.view_mut().clear();
        buffer
    }

    /// A buffer that holds a copy of `values`. Fails as [`alloc`](Self::alloc).
    pub fn copy_of<T: Element>(self: &Arc<Self>, values: &[T], category: Category) -> Buffer {
        let mut buffer = self.alloc(T::DTYPE, values.len(), category);
        buffer.view_mut().write(values);
        buffer
    }

    /// Bytes in use now, by category.
    pub fn live(&self) -> impl Iterator<Item = (Category, usize)> {
        let mut live = self.lock().live_with(self.own_bytes());
        if let Some(offloaded) = &self.offloaded {
            live[OFFLOADED] = offloaded.lock().live[OFFLOADED];
        }
        Category::ALL.into_iter().zip(live)
    }

    /// Most bytes in use at any one time, by category.
    pub fn peak(&self) -> impl Iterator<Item = (Category, usize)> {
        let mut peak = self.lock().noted(self.own_bytes()).peak;
        if let Some(offloaded) = &self.offloaded {
            peak[OFFLOADED] = offloaded.lock().peak[OFFLOADED];
        }
        Category::ALL.into_iter().zip(peak)
    }

    /// Most bytes in use at any one time, all categories together; on a device, of its memory.
    pub fn total_peak(&self) -> usize {
        self.lock().noted(self.own_bytes()).total_peak
    }

    /// Gives what is kept for the next buffers back to the system.
    pub fn give_back(&self) {
        self.lock().free.shrink_to(0);
    }

    /// Takes the memory of a buffer that is no longer used.
    pub(super) fn take_back(&self, block: Block, category: Category) {
        let mut state = self.lock();
        state.live[category as usize] -= block.len();
        state.free.put(block);
    }

    fn own_bytes(&self) -> usize {
        self.device().map_or(0, |device| device.own_bytes())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(
        &mut self,
        bytes: usize,
        category: Category,
        meter: &MemoryMeter,
    ) -> Result<Block, OutOfMemory> {
        let limit = meter.limit;
        let new = || Block::of(&meter.source, bytes);
        let own = meter.own_bytes();
        let total = self.noted(own).live_with(own).iter().sum::<usize>();
        let wanted = total.saturating_add(bytes);
        let block = match self.free.take(bytes) {
            Some(block) => Some(block),
            None if wanted > limit => None,
            None => {
                self.free.shrink_to(limit - wanted);
                new().or_else(|| {
                    self.free.shrink_to(0);
                    new()
                })
            }
        };
        let Some(block) = block else {
            let limit = (wanted > limit).then_some(limit);
            let live = self.live_with(own);
            return Err(OutOfMemory { category, requested: bytes, live, limit });
        };
        self.live[category as usize] += bytes;
        self.noted(own);
        Ok(block)
    }

    /// What is in use, by category, where a device has taken `own` bytes by itself.
    fn live_with(&self, own: usize) -> [usize; Category::ALL.len()] {
        let mut live = self.live;
        live[WORKSPACE] += own;
        live
    }

    /// Raises the peaks to what is in use.
    fn noted(&mut self, own: usize) -> &State {
        let live = self.live_with(own);
        for (peak, live) in self.peak.iter_mut().zip(live) {
            *peak = live.max(*peak);
        }
        self.total_peak = self.total_peak.max(live.iter().sum());
        self
    }
}

/// Freed blocks, by size.
#[derive(Debug, Default)]
struct Pool {
    blocks: BTreeMap<usize, Vec<Block>>,
    bytes: usize,
}

impl Pool {
    fn take(&mut self, bytes: usize) -> Option<Block> {
        let block = self.blocks.get_mut(&bytes)?.pop()?;
        self.bytes -= bytes;
        Some(block)
    }

    fn put(&mut self, block: Block) {
        self.bytes += block.len();
        self.blocks.entry(block.len()).or_default().push(block);
    }

    /// Gives blocks back to the system until the others take at most `bytes`: the largest first, which are the fewest
    /// to be asked for again.
    fn shrink_to(&mut self, bytes: usize) {
        while self.bytes > bytes {
            let Some(mut largest) = self.blocks.last_entry() else { return };
            match largest.get_mut().pop() {
                Some(block) => self.bytes -= block.len(),
                None => drop(largest.remove()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// The error of an allocation that must fail.
    fn refused(meter: &Arc<MemoryMeter>, len: usize, category: Category) -> OutOfMemory {
        let outcome = catch_unwind(AssertUnwindSafe(|| meter.alloc(DType::F32, len, category)));
        *outcome.unwrap_err().downcast().unwrap()
    }

    fn live(meter: &MemoryMeter) -> usize {
        meter.live().map(|(_, bytes)| bytes).sum()
    }

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
        let meter = MemoryMeter::with_limit(0);
        assert!(meter.zeros(DType::U32, 0, Category::Workspace).typed::<u32>().is_empty());
    }

    #[test]
    fn the_limit_is_on_what_is_in_use() {
        let meter = MemoryMeter::with_limit(4096);
        let held = meter.alloc(DType::F32, 512, Category::Parameters);
        let error = refused(&meter, 513, Category::Gradients);
        assert_eq!((error.category, error.requested), (Category::Gradients, 513 * 4 + 60));
        assert_eq!(error.limit, Some(4096));
        assert_eq!(error.live().next(), Some((Category::Parameters, 2048)));
        // Nothing of it was counted, and exactly the limit fits.
        assert_eq!((live(&meter), meter.total_peak()), (2048, 2048));
        let rest = meter.alloc(DType::F32, 512, Category::Gradients);
        assert_eq!(refused(&meter, 1, Category::Workspace).requested, 64);
        drop((held, rest));
        assert_eq!(meter.alloc(DType::F32, 1024, Category::Activations).len(), 1024);
        assert_eq!(meter.total_peak(), 4096);
    }

    #[test]
    fn kept_blocks_make_room_largest_first() {
        let meter = MemoryMeter::with_limit(1024);
        let sizes = [16, 32, 64, 112];
        drop(sizes.map(|len| meter.alloc(DType::F32, len, Category::Activations)));
        assert_eq!(meter.lock().free.bytes, 896);
        // 128 bytes are left; 192 more take the largest of what is kept.
        let held = meter.alloc(DType::F32, 48, Category::Activations);
        let kept = |meter: &MemoryMeter| {
            let state = meter.lock();
            let sizes = state.free.blocks.iter().filter(|(_, blocks)| !blocks.is_empty());
            sizes.map(|(size, _)| *size).collect::<Vec<_>>()
        };
        assert_eq!(kept(&meter), [64, 128, 256]);
        drop(held);
        assert_eq!(meter.alloc(DType::F32, 256, Category::Activations).len(), 256);
        assert_eq!(kept(&meter), [1024]);
    }

    #[test]
    fn what_the_system_refuses_is_an_error_too() {
        let meter = MemoryMeter::new();
        for len in [1 << 58, usize::MAX / 4, usize::MAX] {
            let error = refused(&meter, len, Category::Activations);
            assert_eq!(error.limit, None);
        }
        assert_eq!(live(&meter), 0);
    }
}

//! The memory of one rank: counted by category, kept within a budget, and drawn from a pool so that a training step
//! allocates nothing anew.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::block::{ALIGN, Block, Source};
use super::{Buffer, Category, DType, Device, Element, OutOfMemory};

mod pool;
mod reserve;
#[cfg(test)]
mod tests;

use pool::Pool;
pub(super) use reserve::Reserve;
use reserve::Reserved;

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
    /// Blocks that were handed out so far.
    handed_out: u64,
    free: Pool,
    reserved: Option<Reserved>,
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
        let mut state = self.lock();
        let taken = state.take(bytes.unwrap_or(usize::MAX), category, self);
        let number = state.handed_out;
        drop(state);
        match taken {
            Ok(block) => Buffer::new(block, len, dtype, category, Arc::clone(self), number),
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

    /// Bytes that may still be taken within the limit.
    pub fn room(&self) -> usize {
        let live: usize = self.lock().live_with(self.own_bytes()).iter().sum();
        self.limit.saturating_sub(live)
    }

    /// Gives what is kept for the next buffers back to the system; what is reserved, too, unless work is recorded.
    pub fn give_back(&self) {
        let mut state = self.lock();
        if state.reserved.as_ref().is_some_and(|reserved| !reserved.is_open) {
            state.give_up_reserve();
        }
        state.free.shrink_to(0);
    }

    /// Takes the memory of a buffer that is no longer used, the `number`-th that was handed out.
    pub(super) fn take_back(&self, block: Block, category: Category, number: u64) {
        let mut state = self.lock();
        state.live[category as usize] -= block.len();
        match &mut state.reserved {
            Some(reserved) if reserved.wants(number) => reserved.free.put(block),
            _ => state.free.put(block),
        }
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
        let own = meter.own_bytes();
        let total = self.live_with(own).iter().sum::<usize>();
        let wanted = total.saturating_add(bytes);
        let kept = match self.reserved.as_mut().filter(|reserved| reserved.is_open) {
            Some(reserved) => reserved.free.take(bytes).or_else(|| self.free.take(bytes)),
            None => self.free.take(bytes),
        };
        let block = match kept {
            Some(block) => Some(block),
            None if wanted > limit => None,
            None => self.new_block(bytes, limit - wanted, meter),
        };
        let Some(block) = block else {
            let limit = (wanted > limit).then_some(limit);
            let live = self.live_with(own);
            return Err(OutOfMemory { category, requested: bytes, live, limit });
        };
        self.live[category as usize] += bytes;
        self.noted(own);
        self.handed_out += 1;
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

    /// A block that the system gives, for which at most `kept` bytes are kept for reuse: in the pool, then, if there is no
    /// other way, reserved.
    fn new_block(&mut self, bytes: usize, kept: usize, meter: &MemoryMeter) -> Option<Block> {
        let reserved = self.reserved.as_ref().map_or(0, |reserved| reserved.free.bytes());
        if reserved <= kept {
            let block = self.free.make_room(bytes, kept - reserved, &meter.source);
            if block.is_some() || reserved == 0 {
                return block;
            }
        }
        self.give_up_reserve();
        self.free.take(bytes).or_else(|| self.free.make_room(bytes, kept, &meter.source))
    }
}

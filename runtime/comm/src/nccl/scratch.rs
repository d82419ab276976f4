//! Scratch memory of collectives.
//!
//! The completion of a call holds its scratch, which is freed when the call is claimed: in the order of the compute
//! stream, as all memory of the rank. Calls of one stream run one after the other, so those in flight share one buffer,
//! however late they are claimed. That holds in CUDA graphs, too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use meshwright_backend::{Buffer, CachingAllocator, Category, DType, StreamKind};

/// The scratch memory of the calls in flight, by stream.
#[derive(Debug, Default)]
pub struct Scratch(Mutex<HashMap<StreamKind, Weak<Buffer>>>);

impl Scratch {
    /// Returns memory for `len` elements: the scratch of earlier calls on `stream`, if it is large enough and still in
    /// use, or new memory from `allocator`. Its dtype may be another one.
    pub fn get(
        &self,
        stream: StreamKind,
        allocator: &Arc<CachingAllocator>,
        dtype: DType,
        len: usize,
    ) -> Arc<Buffer> {
        let held = self.lock().get(&stream).and_then(Weak::upgrade);
        let fits = |buffer: &Arc<Buffer>| buffer.view().byte_len() >= len * dtype.bytes();
        held.filter(fits).unwrap_or_else(|| {
            // Allocated outside of the lock, because it may unwind.
            let buffer = Arc::new(allocator.alloc(dtype, len, Category::Communication));
            self.lock().insert(stream, Arc::downgrade(&buffer));
            buffer
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<StreamKind, Weak<Buffer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes in use.
    fn live(allocator: &CachingAllocator) -> usize {
        allocator.live().map(|(_, bytes)| bytes).sum()
    }

    #[test]
    fn calls_in_flight_share_scratch_by_stream() {
        let (scratch, allocator) = (Scratch::default(), CachingAllocator::new());
        let [tp, dp] = [1, 2].map(StreamKind::Communication);
        let first = scratch.get(tp, &allocator, DType::F32, 1024);
        let smaller = scratch.get(tp, &allocator, DType::Bf16, 2000);
        assert!(Arc::ptr_eq(&first, &smaller));
        assert_eq!(live(&allocator), 4096);
        let other = scratch.get(dp, &allocator, DType::F32, 1024);
        let larger = scratch.get(tp, &allocator, DType::F32, 2048);
        assert_eq!(live(&allocator), 4096 + 4096 + 8192);
        drop((first, smaller, other, larger));
        assert_eq!(live(&allocator), 0);
        // Memory that is not held any more may be in use for something else.
        let again = scratch.get(tp, &allocator, DType::F32, 1024);
        assert_eq!(live(&allocator), 4096);
        drop(again);
    }
}

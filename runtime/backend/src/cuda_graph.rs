//! CUDA graphs: device work that is captured once and replayed, with the memory that it uses.
//!
//! Addresses are part of a graph. So memory that is allocated or freed during a capture goes to a [private
//! pool](super::CachingAllocator::private_pool): only other captures of the same [`GraphPool`] get it, until all of
//! their graphs are dropped.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::allocator::PrivatePool;
use super::{
    Buffer, CachingAllocator, Device, DeviceFailure, DeviceGraph, Element, StreamKind, View,
};

/// The memory of the graphs of one rank, which are replayed one after the other and share their private pools.
#[derive(Debug)]
pub struct GraphPool {
    device: Arc<dyn Device>,
    pools: Vec<PrivatePool>,
}

impl GraphPool {
    /// Creates the pool of graphs that allocate from `allocators`.
    pub fn new(device: &Arc<dyn Device>, allocators: &[Arc<CachingAllocator>]) -> Arc<GraphPool> {
        let pools = allocators.iter().map(CachingAllocator::private_pool).collect();
        Arc::new(GraphPool { device: Arc::clone(device), pools })
    }

    /// Returns true if graphs can be replayed: no allocator has reclaimed their memory.
    pub fn is_valid(&self) -> bool {
        self.pools.iter().all(PrivatePool::is_valid)
    }

    /// Captures the work that `work` submits. `prepare` runs eagerly before; the graph may use its allocations.
    ///
    /// # Errors
    /// When the device cannot capture, and why; then nothing of `work` was done.
    pub fn capture<P, T>(
        self: &Arc<Self>,
        prepare: impl FnOnce() -> P,
        work: impl FnOnce(P) -> T,
    ) -> Result<(T, CapturedGraph), String> {
        let _open = OpenPools::new(&self.pools);
        let prepared = prepare();
        self.device.begin_capture()?;
        match catch_unwind(AssertUnwindSafe(|| work(prepared))) {
            Ok(result) => {
                let graph = self.device.end_capture()?;
                Ok((result, CapturedGraph { graph, memory: Arc::clone(self) }))
            }
            Err(payload) => {
                // The failure of the work is more informative than that of the capture that it has cut off.
                drop(self.device.end_capture());
                match payload.downcast::<DeviceFailure>() {
                    Ok(failure) => DeviceFailure(format!(
                        "{} (while a step was captured as a CUDA graph; --no-graphs disables CUDA graphs)",
                        failure.0
                    ))
                    .unwind(),
                    Err(payload) => resume_unwind(payload),
                }
            }
        }
    }

    /// Returns a handle to the memory of `data`, which a graph uses: called during its capture, or while it is
    /// prepared.
    pub fn buffer(self: &Arc<Self>, data: View<'_>) -> GraphBuffer {
        let (address, bytes) = (data.address() as usize, data.byte_len());
        GraphBuffer { address, bytes, memory: Arc::clone(self) }
    }
}

/// Keeps private pools open while it exists.
struct OpenPools<'a>(&'a [PrivatePool]);

impl<'a> OpenPools<'a> {
    fn new(pools: &'a [PrivatePool]) -> OpenPools<'a> {
        pools.iter().for_each(PrivatePool::open_pool);
        OpenPools(pools)
    }
}

impl Drop for OpenPools<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(PrivatePool::close);
    }
}

/// A captured graph, and the memory that it uses.
#[derive(Debug)]
pub struct CapturedGraph {
    // Dropped before the memory.
    graph: Box<dyn DeviceGraph>,
    memory: Arc<GraphPool>,
}

impl CapturedGraph {
    /// Submits the graph, after the work submitted so far.
    ///
    /// # Panics
    /// When the memory is no longer [valid](GraphPool::is_valid): a bug of the caller.
    pub fn replay(&self) {
        assert!(self.memory.is_valid(), "a CUDA graph is replayed with the memory that it uses");
        // SAFETY: all memory that was in use during the capture is still in a private pool, or was never freed; streams
        // are ordered as in the capture.
        unsafe { self.graph.launch() };
    }
}

/// Memory that a graph reads or writes, to be filled before and read after each replay.
#[derive(Debug)]
pub struct GraphBuffer {
    address: usize,
    bytes: usize,
    memory: Arc<GraphPool>,
}

impl GraphBuffer {
    /// Returns the start address.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Copies host values to the buffer, for the work submitted next.
    ///
    /// # Panics
    /// When `values` have another size: a bug of the caller.
    pub fn write<T: Element>(&self, values: &[T]) {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        self.check_size(bytes.len());
        // SAFETY: the memory belongs to the pool while `memory` exists, and graphs that use it are submitted in order.
        unsafe { self.memory.device.upload(self.address as *mut u8, bytes) };
    }

    /// Copies device memory to the buffer.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn copy_from(&self, data: View<'_>) {
        self.check_size(data.byte_len());
        let (device, to) = (&self.memory.device, self.address as *mut u8);
        // SAFETY: as in `write`; the view is of other memory, since this belongs to the pool.
        unsafe { device.copy(StreamKind::Compute, to, data.address(), self.bytes) };
    }

    /// Copies the contents, after the work submitted so far.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn copy_to(&self, buffer: &mut Buffer) {
        let to = buffer.view_mut();
        self.check_size(to.byte_len());
        let (device, from) = (&self.memory.device, self.address as *const u8);
        // SAFETY: as in `copy_from`.
        unsafe { device.copy(StreamKind::Compute, to.address(), from, self.bytes) };
    }

    fn check_size(&self, bytes: usize) {
        assert!(
            bytes == self.bytes && self.memory.is_valid(),
            "the buffer of a CUDA graph is used as it was captured"
        );
    }
}

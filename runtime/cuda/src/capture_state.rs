//! The state of stream captures, and the memory that captured work uses.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::driver::{Driver, DriverCalls, unwrap_call};

/// Capture state of one rank, and the memory that its CUDA graphs use in addition to buffers of models.
#[derive(Default)]
pub(super) struct CaptureState {
    is_capturing: AtomicBool,
    host_waits: AtomicU64,
    /// Total size of the retired workspaces, in bytes.
    retired_bytes: AtomicUsize,
    memory: Mutex<GraphMemory>,
}

/// Memory that captured work uses.
#[derive(Default)]
struct GraphMemory {
    /// Constants of the current capture.
    constants: Vec<PinnedBlock>,
    /// Number of graphs, including the current capture.
    graphs: usize,
    /// Workspaces that are too small for later work but are used by graphs: addresses and sizes.
    retired: Vec<(u64, usize)>,
}

/// A block of page-locked host memory: address and size.
#[derive(Debug, Clone, Copy)]
pub(super) struct PinnedBlock(pub usize, pub usize);

impl CaptureState {
    /// Begins a capture, whose graph exists from now on.
    pub fn begin_capture(&self) {
        self.lock_memory().graphs += 1;
        self.is_capturing.store(true, Relaxed);
    }

    /// Ends the capture, and returns the constants of its graph.
    pub fn end_capture(&self) -> Vec<PinnedBlock> {
        self.is_capturing.store(false, Relaxed);
        std::mem::take(&mut self.lock_memory().constants)
    }

    /// Counts a graph that is dropped. Returns the retired workspaces if it was the last one: their addresses and
    /// sizes.
    pub fn drop_graph(&self) -> Vec<(u64, usize)> {
        let mut memory = self.lock_memory();
        memory.graphs -= 1;
        if memory.graphs > 0 {
            return Vec::new();
        }
        self.retired_bytes.store(0, Relaxed);
        std::mem::take(&mut memory.retired)
    }

    pub fn is_capturing(&self) -> bool {
        self.is_capturing.load(Relaxed)
    }

    /// Counts a wait of the host for the device, including reads of device memory.
    pub fn note_wait(&self) {
        self.host_waits.fetch_add(1, Relaxed);
    }

    /// Returns the number of waits of the host for the device.
    pub fn host_waits(&self) -> u64 {
        self.host_waits.load(Relaxed)
    }

    /// Copies `values` to page-locked memory that lives as long as the captured graph.
    pub fn capture_constant(&self, driver: &dyn Driver, values: &[u8]) -> *const u8 {
        let bytes = values.len().max(1);
        let memory = unwrap_call(driver.alloc_pinned(bytes));
        // SAFETY: the memory is new and large enough for the values.
        unsafe { memory.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        self.lock_memory().constants.push(PinnedBlock(memory as usize, bytes));
        memory
    }

    /// Keeps a workspace that graphs may use until the last graph is dropped. Returns false if there are no graphs.
    pub fn retire_workspace(&self, address: u64, bytes: usize) -> bool {
        let mut memory = self.lock_memory();
        if memory.graphs == 0 {
            return false;
        }
        memory.retired.push((address, bytes));
        self.retired_bytes.fetch_add(bytes, Relaxed);
        true
    }

    /// Returns the total size of the retired workspaces, in bytes.
    pub fn retired_bytes(&self) -> usize {
        self.retired_bytes.load(Relaxed)
    }

    fn lock_memory(&self) -> MutexGuard<'_, GraphMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

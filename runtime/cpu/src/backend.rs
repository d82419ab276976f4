//! The CPU backend.

use std::sync::atomic::{AtomicU64, Ordering};

use super::simd::Level;
use super::workers::Workers;
use meshwright_backend::Backend;

/// The kernels of one rank on the CPU, vectorized for its instruction set.
///
/// Each family of operations is implemented in the file of its kernels.
pub struct CpuBackend {
    pub(super) workers: Workers,
    pub(super) flops: AtomicU64,
}

impl CpuBackend {
    /// Creates a backend that runs on the calling thread and `threads - 1` more.
    ///
    /// Create it on the thread of its rank: with one thread there is no pool, and otherwise the calling thread is a
    /// worker of the pool, so that no work is handed over.
    ///
    /// # Errors
    /// When the system refuses to start a thread, or `MESHWRIGHT_MAX_CPU_ISA` names no instruction set.
    pub fn new(threads: usize) -> std::io::Result<CpuBackend> {
        Level::limit().map_err(std::io::Error::other)?;
        let workers = Workers::new(threads).map_err(std::io::Error::other)?;
        Ok(CpuBackend { workers, flops: AtomicU64::new(0) })
    }
}

impl Backend for CpuBackend {
    fn threads(&self) -> usize {
        self.workers.threads()
    }

    fn flops(&self) -> u64 {
        self.flops.load(Ordering::Relaxed)
    }

    fn count_flops(&self, flops: u64) {
        self.flops.fetch_add(flops, Ordering::Relaxed);
    }
}

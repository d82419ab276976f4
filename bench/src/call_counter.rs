//! Counts of the calls to a null driver.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use meshwright_cuda::{CallKind, GpuCall, NullDriver, Reply};

/// Number of calls of each kind.
pub type CallCounts = [u64; CallKind::COUNT];

/// Counts the calls of one [`NullDriver`].
#[derive(Debug)]
pub struct CallCounter {
    calls: [AtomicU64; CallKind::COUNT],
    /// Loaded kernels and their launches, by function handle.
    kernels: Mutex<Vec<(String, u64)>>,
}

impl CallCounter {
    /// Returns a null driver with fused attention, and the counter of its calls.
    pub fn driver() -> (NullDriver, Arc<CallCounter>) {
        let calls = [const { AtomicU64::new(0) }; CallKind::COUNT];
        let counter = Arc::new(CallCounter { calls, kernels: Mutex::default() });
        let observer = Arc::clone(&counter);
        let driver = NullDriver::new(move |call, reply| observer.count(call, reply));
        (driver.with_attention(), counter)
    }

    /// Returns the number of calls so far.
    pub fn counts(&self) -> CallCounts {
        self.calls.each_ref().map(|count| count.load(Relaxed))
    }

    /// Returns the number of launches of each kernel so far.
    pub fn kernel_launches(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for (name, count) in &*self.kernels() {
            *counts.entry(name.clone()).or_default() += count;
        }
        counts
    }

    fn kernels(&self) -> MutexGuard<'_, Vec<(String, u64)>> {
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, call: &GpuCall<'_>, reply: Reply) {
        match (*call, reply) {
            (GpuCall::Function { name, .. }, Reply::Function(function)) => {
                let (mut kernels, index) = (self.kernels(), function.0 as usize);
                let len = kernels.len().max(index + 1);
                kernels.resize(len, (String::new(), 0));
                kernels[index].0 = name.to_string();
            }
            (GpuCall::Launch { function, .. }, _) => {
                if let Some((_, count)) = self.kernels().get_mut(function.0 as usize) {
                    *count += 1;
                }
            }
            _ => (),
        }
        self.calls[call.kind() as usize].fetch_add(1, Relaxed);
    }
}

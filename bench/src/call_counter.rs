//! Counts of the calls to a null driver.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use meshwright_cuda::{NullCall, NullDriver};

/// Kinds of calls that are counted.
#[derive(Debug, Clone, Copy)]
pub enum CallKind {
    /// Launches of the project's own kernels.
    Launch,
    /// Matmuls.
    MatMul,
    /// Fused attention, forward or backward.
    Attention,
    /// Copies in any direction, and fills with zeros.
    Copy,
    /// Recorded events.
    RecordEvent,
    /// Waits of a stream for an event.
    WaitEvent,
    /// Created events.
    NewEvent,
    /// Synchronizations of the host.
    Synchronize,
    /// Allocations of device memory.
    Alloc,
}

impl CallKind {
    /// Every kind with its label in reports.
    pub const ALL: [(CallKind, &'static str); 9] = [
        (CallKind::Launch, "kernel launches"),
        (CallKind::MatMul, "matmuls"),
        (CallKind::Attention, "attention"),
        (CallKind::Copy, "copies"),
        (CallKind::RecordEvent, "event records"),
        (CallKind::WaitEvent, "event waits"),
        (CallKind::NewEvent, "event creations"),
        (CallKind::Synchronize, "synchronizations"),
        (CallKind::Alloc, "allocations"),
    ];
}

/// Number of calls of each kind.
pub type CallCounts = [u64; CallKind::ALL.len()];

/// Counts the calls of one [`NullDriver`].
#[derive(Debug, Default)]
pub struct CallCounter {
    calls: [AtomicU64; CallKind::ALL.len()],
    /// Loaded kernels and their launches, by function handle.
    kernels: Mutex<Vec<(String, u64)>>,
}

impl CallCounter {
    /// Returns a null driver with fused attention, and the counter of its calls.
    pub fn driver() -> (NullDriver, Arc<CallCounter>) {
        let counter = Arc::new(CallCounter::default());
        let observer = Arc::clone(&counter);
        (NullDriver::new(move |call| observer.count(call)).with_attention(), counter)
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

    fn count(&self, call: NullCall<'_>) {
        let kind = match call {
            NullCall::Function { function, kernel } => {
                let (mut kernels, index) = (self.kernels(), function.0 as usize);
                let len = kernels.len().max(index + 1);
                kernels.resize(len, (String::new(), 0));
                kernels[index].0 = kernel.to_string();
                return;
            }
            NullCall::Launch(function) => {
                if let Some((_, count)) = self.kernels().get_mut(function.0 as usize) {
                    *count += 1;
                }
                CallKind::Launch
            }
            NullCall::MatMul => CallKind::MatMul,
            NullCall::Attention | NullCall::AttentionBackward => CallKind::Attention,
            NullCall::Copy => CallKind::Copy,
            NullCall::RecordEvent => CallKind::RecordEvent,
            NullCall::WaitEvent => CallKind::WaitEvent,
            NullCall::NewEvent => CallKind::NewEvent,
            NullCall::Synchronize => CallKind::Synchronize,
            NullCall::Alloc => CallKind::Alloc,
        };
        self.calls[kind as usize].fetch_add(1, Relaxed);
    }
}

//! A mutex with a condition variable: waiting threads spin briefly, then yield, then sleep.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::{AtomicU32, Condvar, DeadlockDetector, Mutex, MutexGuard, Ordering, yield_now};

/// State that threads wait on.
pub struct Monitor<T> {
    state: Mutex<Watched<T>>,
    changed: Condvar,
    /// Number of notifications, so that waiting threads can check for one without the lock.
    epoch: AtomicU32,
    /// Number of upcoming waits that skip yielding and sleep.
    waits_without_yield: AtomicU32,
    deadlock: Arc<DeadlockDetector>,
}

/// The state with the count of threads that sleep on it.
pub struct Watched<T> {
    value: T,
    /// Threads asleep since the last notification, and how many of them carry tasks.
    sleepers: usize,
    sleeping_tasks: usize,
}

impl<T> Deref for Watched<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Watched<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// The locked state.
pub type Guard<'a, T> = MutexGuard<'a, Watched<T>>;

/// Checks of the epoch before yielding, for a peer that is slightly late. Longer spinning would take the core from the
/// thread that is waited for.
const SPINS: u32 = if cfg!(loom) { 0 } else { 8 };
/// Yields before sleeping. Among ranks that share a core, a yield costs a third of sleeping and waking.
const YIELDS: u32 = if cfg!(loom) { 0 } else { 8 };
/// Duration of a yield after which the next waits sleep directly: a thread that yields to a busy one gets its core back
/// only milliseconds later.
const LONG_YIELD: Duration = Duration::from_micros(50);
/// Longest sleep, and the most that one counts in a time limit. A longer one was not a wait for another thread: the
/// whole process was stopped, as by Ctrl-Z or with its virtual machine.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// Number of waits that sleep directly after a long yield.
const WAITS_AFTER_LONG_YIELD: u32 = 2000;

impl<T> Monitor<T> {
    /// Creates a monitor of `value` whose sleepers `deadlock` counts.
    pub fn new(value: T, deadlock: &Arc<DeadlockDetector>) -> Self {
        Monitor {
            state: Mutex::new(Watched { value, sleepers: 0, sleeping_tasks: 0 }),
            changed: Condvar::new(),
            epoch: AtomicU32::new(0),
            waits_without_yield: AtomicU32::new(0),
            deadlock: Arc::clone(deadlock),
        }
    }

    /// Locks the state.
    pub fn lock(&self) -> Guard<'_, T> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies all waiting threads, which check the state again.
    pub fn notify_all(&self, mut guard: Guard<'_, T>) {
        self.epoch.fetch_add(1, Ordering::Release);
        let sleepers = std::mem::take(&mut guard.sleepers);
        // Counted as running from now on, although waking takes them a while.
        self.deadlock.add_running(std::mem::take(&mut guard.sleeping_tasks));
        drop(guard);
        if sleepers > 0 {
            self.changed.notify_all();
        }
    }

    /// Waits until `ready` returns a value. It is called under the lock, first immediately and then after every
    /// notification. After `limit` it is called a last time, with `true`, and must return a value. Time during which
    /// the process was stopped does not count.
    pub fn wait<'a, R>(
        &'a self,
        mut guard: Guard<'a, T>,
        limit: Duration,
        mut ready: impl FnMut(&mut T, bool) -> Option<R>,
    ) -> R {
        let mut waited = Duration::ZERO;
        loop {
            if let Some(value) = ready(&mut guard, false) {
                return value;
            }
            let start = Instant::now();
            let epoch = self.epoch.load(Ordering::Acquire);
            drop(guard);
            let notified = self.wait_briefly(epoch);
            guard = self.lock();
            let slept = !notified && self.epoch.load(Ordering::Acquire) == epoch;
            if slept {
                guard = self.sleep(guard, epoch, limit.saturating_sub(waited).min(LONGEST_SLEEP));
            }
            waited += start.elapsed().min(LONGEST_SLEEP);
            if slept && waited >= limit {
                let value = ready(&mut guard, false).or_else(|| ready(&mut guard, true));
                if let Some(value) = value {
                    return value;
                }
            }
        }
    }

    /// Sleeps until a notification, or for `limit`.
    fn sleep<'a>(&'a self, mut guard: Guard<'a, T>, epoch: u32, limit: Duration) -> Guard<'a, T> {
        let is_task = self.deadlock.tracks_this_thread();
        guard.sleepers += 1;
        guard.sleeping_tasks += usize::from(is_task);
        if is_task && self.deadlock.remove_running() {
            // The report notifies all sleepers, this thread included.
            drop(guard);
            self.deadlock.report_deadlock();
            guard = self.lock();
        }
        if self.epoch.load(Ordering::Acquire) == epoch {
            guard =
                self.changed.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner).0;
        }
        if self.epoch.load(Ordering::Acquire) == epoch {
            // Not woken by a notification, which would have counted it as running.
            guard.sleepers -= 1;
            guard.sleeping_tasks -= usize::from(is_task);
            self.deadlock.add_running(usize::from(is_task));
        }
        guard
    }

    /// Spins and yields. Returns `true` if the epoch has changed meanwhile.
    fn wait_briefly(&self, epoch: u32) -> bool {
        let changed = || self.epoch.load(Ordering::Acquire) != epoch;
        for _ in 0..SPINS {
            if changed() {
                return true;
            }
            std::hint::spin_loop();
        }
        // An estimate: threads may overwrite each other's count.
        let direct_waits = self.waits_without_yield.load(Ordering::Relaxed);
        if direct_waits > 0 {
            self.waits_without_yield.store(direct_waits - 1, Ordering::Relaxed);
            return false;
        }
        let mut start = Instant::now();
        for _ in 0..YIELDS {
            yield_now();
            let back = Instant::now();
            if back - start > LONG_YIELD {
                self.waits_without_yield.store(WAITS_AFTER_LONG_YIELD, Ordering::Relaxed);
                return changed();
            }
            if changed() {
                return true;
            }
            start = back;
        }
        false
    }
}

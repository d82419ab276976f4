//! A mutex with waiting: threads spin for a moment, then sleep.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::activity::Activity;
use super::sync::{AtomicU32, Condvar, Mutex, MutexGuard, Ordering, yield_now};

/// State that threads wait on.
pub struct Monitor<T> {
    state: Mutex<Watched<T>>,
    changed: Condvar,
    /// Counts announcements, so that waiting threads can look without taking the lock.
    epoch: AtomicU32,
    /// How many of the next waits sleep at once.
    crowded: AtomicU32,
    activity: Arc<Activity>,
}

pub struct Watched<T> {
    value: T,
    /// Threads asleep since the last announcement, and how many of them carry parties.
    sleepers: usize,
    sleeping_parties: usize,
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

pub type Guard<'a, T> = MutexGuard<'a, Watched<T>>;

/// Looks at the epoch this often before sleeping, for a peer that is a moment late: long spinning would take the core
/// from whoever is waited for.
const SPINS: u32 = if cfg!(loom) { 0 } else { 8 };
/// Then gives the core away this often. Among ranks that take turns on a core it costs a third of sleeping and waking.
const YIELDS: u32 = if cfg!(loom) { 0 } else { 8 };
/// But a thread that gives its core to one with much to do gets it back milliseconds later. After a turn that took this
/// long, the next waits go to sleep without it.
const LONG_TURN: Duration = Duration::from_micros(50);
const WAITS_AFTER_LONG_TURN: u32 = 2000;

impl<T> Monitor<T> {
    pub fn new(value: T, activity: &Arc<Activity>) -> Self {
        Monitor {
            state: Mutex::new(Watched { value, sleepers: 0, sleeping_parties: 0 }),
            changed: Condvar::new(),
            epoch: AtomicU32::new(0),
            crowded: AtomicU32::new(0),
            activity: Arc::clone(activity),
        }
    }

    pub fn lock(&self) -> Guard<'_, T> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes every waiting thread look at the state again.
    pub fn announce(&self, mut guard: Guard<'_, T>) {
        self.epoch.fetch_add(1, Ordering::Release);
        let sleepers = std::mem::take(&mut guard.sleepers);
        // They run from now on, although it takes them a while to notice.
        self.activity.more(std::mem::take(&mut guard.sleeping_parties));
        drop(guard);
        if sleepers > 0 {
            self.changed.notify_all();
        }
    }

    /// Waits until `ready` gives a value; it is asked under the lock, first at once and then after every
    /// announcement. After `limit` it is asked a last time, with `true`, and must give one.
    pub fn wait<'a, R>(
        &'a self,
        mut guard: Guard<'a, T>,
        limit: Duration,
        mut ready: impl FnMut(&mut T, bool) -> Option<R>,
    ) -> R {
        let start = Instant::now();
        loop {
            if let Some(value) = ready(&mut guard, false) {
                return value;
            }
            let epoch = self.epoch.load(Ordering::Acquire);
            drop(guard);
            let announced = self.wait_briefly(epoch);
            guard = self.lock();
            if announced || self.epoch.load(Ordering::Acquire) != epoch {
                continue;
            }
            guard = self.sleep(guard, epoch, limit.saturating_sub(start.elapsed()));
            if start.elapsed() >= limit {
                let value = ready(&mut guard, false).or_else(|| ready(&mut guard, true));
                if let Some(value) = value {
                    return value;
                }
            }
        }
    }

    /// Sleeps until an announcement, or for `limit`.
    fn sleep<'a>(&'a self, mut guard: Guard<'a, T>, epoch: u32, limit: Duration) -> Guard<'a, T> {
        let is_party = self.activity.counts_this_thread();
        guard.sleepers += 1;
        guard.sleeping_parties += usize::from(is_party);
        if is_party && self.activity.less() {
            // Comes back as an announcement to all who sleep, this thread among them.
            drop(guard);
            self.activity.deadlock();
            guard = self.lock();
        }
        if self.epoch.load(Ordering::Acquire) == epoch {
            guard =
                self.changed.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner).0;
        }
        if self.epoch.load(Ordering::Acquire) == epoch {
            // Not woken by an announcement, which would have counted it as running.
            guard.sleepers -= 1;
            guard.sleeping_parties -= usize::from(is_party);
            self.activity.more(usize::from(is_party));
        }
        guard
    }

    /// Whether the epoch has moved on while this thread was awake.
    fn wait_briefly(&self, epoch: u32) -> bool {
        let changed = || self.epoch.load(Ordering::Acquire) != epoch;
        for _ in 0..SPINS {
            if changed() {
                return true;
            }
            std::hint::spin_loop();
        }
        // A guess, so that threads may overwrite each other's count.
        let crowded = self.crowded.load(Ordering::Relaxed);
        if crowded > 0 {
            self.crowded.store(crowded - 1, Ordering::Relaxed);
            return false;
        }
        let mut turn = Instant::now();
        for _ in 0..YIELDS {
            yield_now();
            let back = Instant::now();
            if back - turn > LONG_TURN {
                self.crowded.store(WAITS_AFTER_LONG_TURN, Ordering::Relaxed);
                return changed();
            }
            if changed() {
                return true;
            }
            turn = back;
        }
        false
    }
}

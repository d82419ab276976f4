//! A mutex with waiting: threads spin for a moment, then sleep.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// State that threads wait on.
pub struct Monitor<T> {
    state: Mutex<Watched<T>>,
    changed: Condvar,
    /// Counts announcements, so that waiting threads can look without taking the lock.
    epoch: AtomicU32,
}

pub struct Watched<T> {
    value: T,
    sleepers: usize,
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

/// Looks at the epoch this often before it sleeps: first in a row, for a peer that is a moment late, and then
/// giving its core away in between, for ranks that share one. Long spinning only pays where every thread has a core
/// to itself, and takes the core from whoever is waited for where it has not.
const SPINS: u32 = 8;
const YIELDS: u32 = 24;

impl<T> Monitor<T> {
    pub fn new(value: T) -> Self {
        Monitor {
            state: Mutex::new(Watched { value, sleepers: 0 }),
            changed: Condvar::new(),
            epoch: AtomicU32::new(0),
        }
    }

    pub fn lock(&self) -> Guard<'_, T> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes every waiting thread look at the state again.
    pub fn announce(&self, guard: Guard<'_, T>) {
        self.epoch.fetch_add(1, Ordering::Release);
        let sleepers = guard.sleepers;
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
            guard.sleepers += 1;
            let left = limit.saturating_sub(start.elapsed());
            guard =
                self.changed.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
            guard.sleepers -= 1;
            if start.elapsed() >= limit {
                let value = ready(&mut guard, false).or_else(|| ready(&mut guard, true));
                if let Some(value) = value {
                    return value;
                }
            }
        }
    }

    /// Whether the epoch has moved on while this thread was awake.
    fn wait_briefly(&self, epoch: u32) -> bool {
        for round in 0..SPINS + YIELDS {
            if self.epoch.load(Ordering::Acquire) != epoch {
                return true;
            }
            if round < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        false
    }
}

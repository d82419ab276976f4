//! The ranks that have connected to the store, for rank 0, which waits for all of them.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// First time after which a wait is reported. Each later one is twice as long.
const FIRST_REPORT: Duration = Duration::from_secs(5);
/// Time between two looks at a reason to end the wait.
const POLL: Duration = Duration::from_millis(100);
/// Most ranks that are named.
const MAX_NAMED: usize = 8;

/// The ranks that have connected to a server.
#[derive(Debug, Default)]
pub struct Arrivals {
    ranks: Mutex<BTreeSet<u32>>,
    changed: Condvar,
}

impl Arrivals {
    /// Notes that a rank has connected.
    pub fn note(&self, rank: u32) {
        self.ranks.lock().unwrap_or_else(PoisonError::into_inner).insert(rank);
        self.changed.notify_all();
    }

    /// Waits for all ranks of `world`, until `is_over`. Returns those that are missing. `report` gets them, and the
    /// time of the wait, now and then.
    pub fn await_all(
        &self,
        world: usize,
        is_over: impl Fn(Duration) -> bool,
        report: impl Fn(&str, Duration),
    ) -> Option<String> {
        let mut reports = WaitReports::begin();
        let mut ranks = self.ranks.lock().unwrap_or_else(PoisonError::into_inner);
        while ranks.len() < world {
            let missing = || name_missing(&ranks, world);
            if is_over(reports.waited()) {
                return Some(missing());
            }
            if let Some(waited) = reports.due() {
                report(&missing(), waited);
            }
            let woken = self.changed.wait_timeout(ranks, POLL);
            ranks = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        None
    }
}

/// The times at which a wait is reported.
pub struct WaitReports {
    start: Instant,
    next: Duration,
}

impl WaitReports {
    /// Begins the wait.
    pub fn begin() -> WaitReports {
        WaitReports { start: Instant::now(), next: FIRST_REPORT }
    }

    /// Returns the time of the wait so far.
    pub fn waited(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns the time of the wait if it is to be reported now.
    pub fn due(&mut self) -> Option<Duration> {
        let waited = self.waited();
        if waited < self.next {
            return None;
        }
        self.next = 2 * waited;
        Some(waited)
    }
}

/// Names the ranks of `world` that are not among `ranks`: `rank 3`, `ranks 1, 2` or `ranks 0, 1, 2 and 5 more`.
fn name_missing(ranks: &BTreeSet<u32>, world: usize) -> String {
    let missing: Vec<usize> = (0..world).filter(|rank| !ranks.contains(&(*rank as u32))).collect();
    let named: Vec<String> = missing.iter().take(MAX_NAMED).map(usize::to_string).collect();
    let more = match missing.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let plural = if missing.len() == 1 { "" } else { "s" };
    format!("rank{plural} {}{more}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_ranks_are_named() {
        let arrivals = Arrivals::default();
        let missing = |world| arrivals.await_all(world, |_| true, |_, _| {});
        assert_eq!(missing(2).as_deref(), Some("ranks 0, 1"));
        [1, 0].into_iter().for_each(|rank| arrivals.note(rank));
        assert_eq!(missing(2), None);
        assert_eq!(missing(3).as_deref(), Some("rank 2"));
        assert_eq!(missing(20).as_deref(), Some("ranks 2, 3, 4, 5, 6, 7, 8, 9 and 10 more"));
    }

    #[test]
    fn a_wait_ends_with_the_last_rank() {
        let arrivals = Arrivals::default();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                arrivals.await_all(2, |waited| waited > Duration::from_secs(60), |_, _| {})
            });
            [0, 1].into_iter().for_each(|rank| arrivals.note(rank));
            assert_eq!(waiter.join().unwrap(), None);
        });
    }

    #[test]
    fn waits_are_reported_ever_more_seldom() {
        let mut reports = WaitReports::begin();
        assert_eq!(reports.due(), None);
        reports.start -= FIRST_REPORT;
        assert!(reports.due().is_some() && reports.due().is_none());
        reports.start -= 2 * FIRST_REPORT;
        assert!(reports.due().is_some_and(|waited| waited >= 2 * FIRST_REPORT));
    }
}

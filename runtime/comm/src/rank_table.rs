//! Last call and exit of every rank of the process, for error messages and failure detection.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::call::Call;
use super::sync::DeadlockDetector;
use super::{FILE_TIME_LIMIT, RankExit};

/// State that the ranks and all process groups of one launch share.
pub(super) struct RankTable {
    ranks: Vec<Mutex<RankRecord>>,
    /// Ranks that have ended, in the order of their ends.
    exits: Mutex<Vec<(usize, ExitCause)>>,
    /// Longest wait of a call for other ranks, unless it is [extended](Self::extend_time_limit).
    pub timeout: Duration,
    pub deadlock: Arc<DeadlockDetector>,
}

#[derive(Default)]
struct RankRecord {
    last_call: Option<Arc<Call>>,
    /// Set when the rank got an error because another one had ended.
    stopped_by: Option<ExitCause>,
    /// Set while the calls of the rank may wait for files.
    waits_for_files: bool,
}

/// The root cause of a rank's end: the rank itself, or the one whose end stopped it.
#[derive(Debug, Clone)]
pub(super) struct ExitCause {
    pub rank: usize,
    pub exit: RankExit,
}

impl RankTable {
    /// Creates the table of `ranks` running ranks.
    pub fn new(ranks: usize, timeout: Duration) -> RankTable {
        RankTable {
            ranks: (0..ranks).map(|_| Mutex::default()).collect(),
            exits: Mutex::default(),
            timeout,
            deadlock: Arc::new(DeadlockDetector::new(ranks)),
        }
    }

    /// Number of ranks.
    pub fn world_size(&self) -> usize {
        self.ranks.len()
    }

    /// Extends the time limit of the calls of `rank` to that for files, or restores it.
    pub fn extend_time_limit(&self, rank: usize, waits_for_files: bool) {
        self.lock_record(rank).waits_for_files = waits_for_files;
    }

    /// Returns the longest wait of a call of `rank` for other ranks.
    pub fn time_limit(&self, rank: usize) -> Duration {
        let waits_for_files = self.lock_record(rank).waits_for_files;
        if waits_for_files { self.timeout.max(FILE_TIME_LIMIT) } else { self.timeout }
    }

    /// Notes the call that `rank` carries out now.
    pub fn note_call(&self, rank: usize, call: &Arc<Call>) {
        self.lock_record(rank).last_call = Some(Arc::clone(call));
    }

    /// Describes the last call of `rank`.
    pub fn describe_last_call(&self, rank: usize) -> String {
        match &self.lock_record(rank).last_call {
            Some(call) => format!("rank {rank}: {call}"),
            None => format!("rank {rank}: no call yet"),
        }
    }

    /// Notes that `rank` gets an error because of `cause`.
    pub fn note_stopped(&self, rank: usize, cause: &ExitCause) {
        self.lock_record(rank).stopped_by.get_or_insert_with(|| cause.clone());
    }

    /// Returns the exit that stopped `rank`, if any.
    pub fn stopped_by(&self, rank: usize) -> Option<ExitCause> {
        self.lock_record(rank).stopped_by.clone()
    }

    /// Notes the exit of `rank`, with its root cause.
    pub fn note_exit(&self, rank: usize, exit: RankExit) {
        let cause = match self.stopped_by(rank) {
            Some(cause) if exit != RankExit::Returned => cause,
            _ => ExitCause { rank, exit },
        };
        self.lock_exits().push((rank, cause));
    }

    /// Returns the root cause of the exit of `rank`, if it has ended.
    pub fn exit_of(&self, rank: usize) -> Option<ExitCause> {
        let exits = self.lock_exits();
        exits.iter().find(|(ended, _)| *ended == rank).map(|(_, cause)| cause.clone())
    }

    /// Returns the root cause of the first failure of a rank, unless that was `own_rank`.
    pub fn first_failure(&self, own_rank: usize) -> Option<ExitCause> {
        let exits = self.lock_exits();
        let mut causes = exits.iter().map(|(_, cause)| cause);
        let is_failure =
            |cause: &&ExitCause| cause.rank != own_rank && cause.exit != RankExit::Returned;
        causes.find(is_failure).cloned()
    }

    /// Returns the root cause of the first failure of any rank.
    pub fn first_exit(&self) -> Option<RankExit> {
        let exits = self.lock_exits();
        let mut causes = exits.iter().map(|(_, cause)| &cause.exit);
        causes.find(|exit| **exit != RankExit::Returned).cloned()
    }

    /// Returns the position of `rank` in the order of exits.
    pub fn exit_position(&self, rank: usize) -> usize {
        let exits = self.lock_exits();
        exits.iter().position(|(ended, _)| *ended == rank).unwrap_or(usize::MAX)
    }

    /// Returns the ranks that have not ended.
    pub fn running_ranks(&self) -> Vec<usize> {
        let exits = self.lock_exits();
        let has_ended = |rank: &usize| exits.iter().any(|(ended, _)| ended == rank);
        (0..self.ranks.len()).filter(|rank| !has_ended(rank)).collect()
    }

    fn lock_record(&self, rank: usize) -> MutexGuard<'_, RankRecord> {
        self.ranks[rank].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_exits(&self) -> MutexGuard<'_, Vec<(usize, ExitCause)>> {
        self.exits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns `rank 3` or `ranks 0, 2`.
pub(super) fn name_ranks(ranks: &[usize]) -> String {
    let list: Vec<_> = ranks.iter().map(usize::to_string).collect();
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, list.join(", "))
}

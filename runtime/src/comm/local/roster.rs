//! What is known of every rank of the process: its last call and its end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::comm::Departure;
use crate::comm::call::Call;

use super::activity::Activity;

/// Shared by all groups.
pub struct Roster {
    ranks: Vec<Mutex<RankRecord>>,
    /// How long a call waits for other members at most.
    pub timeout: Duration,
    pub activity: Arc<Activity>,
}

#[derive(Default)]
struct RankRecord {
    last_call: Option<Arc<Call>>,
    /// Set when the rank was given an error because another one had ended.
    stopped_by: Option<Ending>,
}

/// The end of a rank: which rank ended by itself, and how. For a rank that stopped because another one had
/// ended, this is the other one.
#[derive(Debug, Clone)]
pub struct Ending {
    pub rank: usize,
    pub departure: Departure,
}

impl Roster {
    pub fn new(ranks: usize, timeout: Duration) -> Roster {
        let activity = Arc::new(Activity::new(ranks));
        let ranks = (0..ranks).map(|_| Mutex::default()).collect();
        Roster { ranks, timeout, activity }
    }

    pub fn note_call(&self, rank: usize, call: &Arc<Call>) {
        self.record(rank).last_call = Some(Arc::clone(call));
    }

    pub fn last_call(&self, rank: usize) -> String {
        match &self.record(rank).last_call {
            Some(call) => format!("rank {rank}: {call}"),
            None => format!("rank {rank}: no call yet"),
        }
    }

    pub fn note_stopped(&self, rank: usize, ending: &Ending) {
        self.record(rank).stopped_by.get_or_insert_with(|| ending.clone());
    }

    pub fn stopped_by(&self, rank: usize) -> Option<Ending> {
        self.record(rank).stopped_by.clone()
    }

    fn record(&self, rank: usize) -> MutexGuard<'_, RankRecord> {
        self.ranks[rank].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

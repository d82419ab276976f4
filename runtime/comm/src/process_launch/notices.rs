//! Messages of the store that are no replies to requests: exits of ranks, and ranks without progress.

use std::io::BufReader;
use std::net::TcpStream;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::RankExit;

use super::protocol::{IdleRank, StoreMessage};

/// The bytes of a reply, or the reason of a refusal.
pub type StoreReply = Result<Vec<u8>, String>;

/// Exits of ranks, and the replies to heartbeats.
#[derive(Debug, Default)]
pub struct Notices {
    /// The first rank that failed or was lost.
    first_failure: OnceLock<(usize, RankExit)>,
    /// Set when rank 0 has returned, which ends the store.
    store_ended: OnceLock<()>,
    heartbeat: Mutex<Heartbeat>,
}

#[derive(Debug, Default)]
struct Heartbeat {
    /// Time since the last reply.
    silence: Duration,
    /// The ranks without progress in the last reply.
    idle: Vec<IdleRank>,
}

impl Notices {
    /// Returns the first failure.
    pub fn first_failure(&self) -> Option<(usize, RankExit)> {
        self.first_failure.get().cloned()
    }

    /// Returns the ranks without progress, as of the last heartbeat.
    pub fn idle_ranks(&self) -> Vec<IdleRank> {
        self.lock().idle.clone()
    }

    /// Counts time as silence of the store, and returns the whole silence.
    pub fn pass_time(&self, elapsed: Duration) -> Duration {
        let mut heartbeat = self.lock();
        heartbeat.silence += elapsed;
        heartbeat.silence
    }

    /// Notes that rank 0 has ended or is silent, unless it has returned.
    pub fn lose_store(&self, exit: RankExit) {
        if self.store_ended.get().is_none() {
            self.first_failure.get_or_init(|| (0, exit));
        }
    }

    /// Reads until the connection ends: on the exit of rank 0, or of this rank.
    pub fn read_loop(
        &self,
        own_rank: usize,
        mut input: BufReader<TcpStream>,
        replies: &Sender<StoreReply>,
    ) {
        while let Ok(message) = StoreMessage::read(&mut input) {
            let reply = match message {
                StoreMessage::Done(value) => Ok(value),
                StoreMessage::Refused(reason) => Err(reason),
                StoreMessage::Exited(0, RankExit::Returned) => {
                    // It returns once.
                    let _ = self.store_ended.set(());
                    continue;
                }
                StoreMessage::Exited(_, RankExit::Returned) => continue,
                StoreMessage::Exited(rank, exit) => {
                    // Later failures follow from the first.
                    let _ = self.first_failure.set((rank, exit));
                    continue;
                }
                StoreMessage::Alive(idle) => {
                    *self.lock() = Heartbeat { silence: Duration::ZERO, idle };
                    continue;
                }
            };
            if replies.send(reply).is_err() {
                return;
            }
        }
        if own_rank != 0 {
            self.lose_store(RankExit::Lost);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Heartbeat> {
        self.heartbeat.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

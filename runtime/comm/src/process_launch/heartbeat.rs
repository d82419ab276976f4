//! Heartbeats of a process, from a thread of their own: a main thread that reads files for long does not stop them, but
//! a paused process does.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock, TryLockError};
use std::time::{Duration, Instant};

use crate::{RankExit, RankProgress};

use super::notices::Notices;
use super::protocol::StoreRequest;

/// Time between two heartbeats.
pub const HEARTBEAT_PERIOD: Duration = Duration::from_secs(1);
/// Longest time between two heartbeats that counts as silence of the store. A longer one was a pause of this process.
const LONGEST_PERIOD: Duration = Duration::from_secs(2);
/// Shortest wait, when the limit is near.
const SHORTEST_WAIT: Duration = Duration::from_millis(50);
/// Silence of the store after which no further heartbeats are sent: it would not read them.
const PATIENCE: Duration = Duration::from_secs(30);

/// The function that returns the progress of this rank.
pub type ReadProgress = Box<dyn Fn() -> RankProgress + Send + Sync>;

/// The heartbeats of one process, sent by a thread.
pub struct Heartbeats {
    pub rank: usize,
    pub out: Arc<Mutex<TcpStream>>,
    pub stream: TcpStream,
    pub notices: Arc<Notices>,
    /// Set once the run has begun.
    pub progress: Arc<OnceLock<ReadProgress>>,
    /// Time without a reply after which rank 0 is given up.
    pub limit: Duration,
}

impl Heartbeats {
    /// Sends heartbeats until the sender of `stop` is dropped.
    pub fn run(self, stop: &Receiver<()>) {
        let mut last = Instant::now();
        // The last reply was sent up to a period before rank 0 fell silent.
        let limit = self.limit + HEARTBEAT_PERIOD;
        let mut silence = Duration::ZERO;
        loop {
            self.send();
            let wait = limit.saturating_sub(silence).clamp(SHORTEST_WAIT, HEARTBEAT_PERIOD);
            if stop.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            silence = self.notices.pass_time(last.elapsed().min(LONGEST_PERIOD));
            last = Instant::now();
            if self.rank != 0 && silence >= limit {
                let text = format!("{} s", self.limit.as_secs_f64());
                self.notices.lose_store(RankExit::Silent(text.into()));
                // Ends the requests that wait for a reply.
                let _ = self.stream.shutdown(Shutdown::Both);
                return;
            }
        }
    }

    fn send(&self) {
        if self.notices.pass_time(Duration::ZERO) > PATIENCE {
            return;
        }
        let progress = self.progress.get().map(|read| read()).unwrap_or_default();
        let Ok(bytes) = StoreRequest::Beat(progress).to_bytes() else { return };
        // A request that is being written is a sign of life too.
        let mut out = match self.out.try_lock() {
            Ok(out) => out,
            Err(TryLockError::Poisoned(out)) => out.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // The reader of the connection notices its end.
        let _ = out.write_all(&bytes);
    }
}

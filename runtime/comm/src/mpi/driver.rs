//! The threads that advance the calls of a rank, one at a time.
//!
//! A thread that waits for a call advances all calls itself, so none has to wake another. A thread of the engine
//! advances calls that no thread waits for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SendError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::{CommError, Peers};

use super::groups::MpiGroups;
use super::job::MpiJob;
use super::library::MpiLibrary;
use super::progress::{MpiProgress, SLEEP};
use super::scratch::ScratchAllocator;

/// Time without progress after which a thread sleeps between tests. Before that it yields: a thread that sleeps
/// limits the bandwidth, and one that never does takes a core from computation. It yields first: on a busy machine, a
/// thread that spins first loses its core for longer.
const YIELD_TIME: Duration = Duration::from_millis(2);

/// The calls of a rank, and the threads that advance them.
pub struct MpiDriver {
    /// `None` after the end.
    progress: Mutex<Option<MpiProgress>>,
    issued: Sender<Box<MpiJob>>,
    /// Number of threads that wait for calls.
    waiting: AtomicUsize,
    end: OnceLock<EngineEnd>,
    /// The thread of the engine.
    thread: Thread,
}

/// The end of the engine.
pub enum EngineEnd {
    /// Completes all calls, waits for the other ranks to do the same within the time limit, and ends the use of MPI.
    Finish(Duration),
    /// Ends all calls, without a further MPI call. The failure is set.
    Abort,
}

impl MpiDriver {
    /// Creates the driver of a rank without calls, on the thread of the engine.
    pub fn new(
        rank: usize,
        (library, groups): (MpiLibrary, MpiGroups),
        scratch: Arc<ScratchAllocator>,
        peers: Arc<dyn Peers>,
        failure: Arc<OnceLock<CommError>>,
    ) -> MpiDriver {
        let (issued, received) = channel();
        let progress =
            MpiProgress::new(rank, (library, groups), received, scratch, (peers, failure));
        MpiDriver {
            progress: Mutex::new(Some(progress)),
            issued,
            waiting: AtomicUsize::new(0),
            end: OnceLock::new(),
            thread: thread::current(),
        }
    }

    /// Issues a call, which is advanced by [`advance_until`](Self::advance_until), or after [`wake`](Self::wake).
    ///
    /// # Errors
    /// After the end.
    pub fn issue(&self, job: MpiJob) -> Result<(), SendError<Box<MpiJob>>> {
        self.issued.send(Box::new(job))
    }

    /// Wakes the thread of the engine, for an issued call that no thread waits for yet.
    pub fn wake(&self) {
        self.thread.unpark();
    }

    /// Advances all calls until `is_done` returns true, or until the end.
    pub fn advance_until(&self, is_done: &dyn Fn() -> bool) {
        if is_done() {
            return;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut last_progress = Instant::now();
        loop {
            let mut progress = self.lock();
            let has_advanced = progress.as_mut().is_some_and(MpiProgress::advance);
            if progress.is_none() || is_done() {
                // Under the lock, and after taking the issued calls: for a later one the thread of the engine is woken.
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                let is_idle = progress.as_ref().is_none_or(MpiProgress::is_idle);
                drop(progress);
                if !is_idle {
                    self.wake();
                }
                return;
            }
            drop(progress);
            pause(has_advanced, &mut last_progress, thread::sleep);
        }
    }

    /// Ends the engine, unless its end has begun.
    pub fn end(&self, end: EngineEnd) {
        let _ = self.end.set(end);
        self.wake();
    }

    /// Advances calls that no thread waits for, on the thread of the engine, until its end. Returns the library if all
    /// ranks have finished, so that its use may end.
    pub fn advance_others(&self) -> Option<MpiLibrary> {
        let mut last_progress = Instant::now();
        loop {
            // Before the calls: those that were issued before the end are completed.
            let end = self.end.get();
            let mut open = self.lock();
            let progress = open.as_mut()?;
            let has_other = self.waiting.load(Ordering::Relaxed) > 0 && end.is_none();
            let has_advanced = !has_other && progress.advance();
            let is_idle = progress.is_idle();
            match end {
                Some(EngineEnd::Finish(limit)) if is_idle => {
                    let progress = open.take()?;
                    drop(open);
                    return progress.finish(*limit);
                }
                Some(EngineEnd::Abort) => {
                    *open = None;
                    return None;
                }
                _ => {}
            }
            drop(open);
            if has_other || is_idle && end.is_none() {
                thread::park();
                last_progress = Instant::now();
            } else {
                pause(has_advanced, &mut last_progress, thread::park_timeout);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<MpiProgress>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pauses between two tests, unless the last one has made progress.
fn pause(has_advanced: bool, last_progress: &mut Instant, sleep: fn(Duration)) {
    if has_advanced {
        *last_progress = Instant::now();
    } else if last_progress.elapsed() < YIELD_TIME {
        thread::yield_now();
    } else {
        sleep(SLEEP);
    }
}

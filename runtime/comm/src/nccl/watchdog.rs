//! The watchdog of a rank's communicators: timeouts, failure detection, and abort, so that no call waits forever.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::{CommError, FILE_TIME_LIMIT, Peers, RankExit};
use meshwright_backend::{Buffer, Device, DeviceEvent};

use super::api::{Comm, CommState, Library, LibraryError};
use super::settings::NcclSettings;

/// Polling period.
const PERIOD: Duration = Duration::from_millis(20);
/// Time for failure detection to report a failed rank: the library may notice it first, but cannot name the rank.
const DETECTION_TIME: Duration = Duration::from_millis(500);
/// Time for the aborts of communicators to end before the engine is dropped.
const ABORT_TIME: Duration = Duration::from_secs(5);
/// Time of polling a busy communicator without sleeping: the end of a group of calls takes less.
const SPIN_TIME: Duration = Duration::from_micros(200);

/// The communicators of a rank and their calls in flight.
#[derive(Debug)]
pub struct Watchdog {
    library: Arc<dyn Library>,
    device: Arc<dyn Device>,
    rank: usize,
    timeout: Duration,
    /// Set while calls are submitted that may wait for files.
    waits_for_files: AtomicBool,
    peers: Arc<dyn Peers>,
    /// Held during library calls on a communicator, which must not be aborted meanwhile.
    library_calls: Mutex<()>,
    state: Mutex<WatchState>,
    changed: Condvar,
    failure: OnceLock<CommError>,
    /// A thread for each communicator that is being aborted.
    aborts: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct WatchState {
    comms: Vec<Comm>,
    /// The call that is being submitted, which may already wait for other ranks.
    submitting: Option<String>,
    /// Calls in the order of submission, which is not the order of completion.
    in_flight: VecDeque<InFlightCall>,
    is_closed: bool,
}

/// A submitted call.
#[derive(Debug)]
struct InFlightCall {
    call: String,
    since: Instant,
    /// The time limit.
    limit: Duration,
    end: DeviceEvent,
    /// The data of a send, in use until the end.
    held: Option<Arc<Buffer>>,
}

/// Guard of the submission of a call.
pub struct Submission<'a>(&'a Watchdog);

impl Drop for Submission<'_> {
    fn drop(&mut self) {
        self.0.lock_state().submitting = None;
    }
}

impl Watchdog {
    /// Creates the watchdog of the rank of `settings`, without communicators.
    pub fn new(
        library: Arc<dyn Library>,
        device: Arc<dyn Device>,
        settings: &NcclSettings,
    ) -> Arc<Watchdog> {
        let NcclSettings { rank, timeout, ref peers, .. } = *settings;
        Arc::new(Watchdog {
            library,
            device,
            rank,
            timeout,
            waits_for_files: AtomicBool::new(false),
            peers: Arc::clone(peers),
            library_calls: Mutex::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
            failure: OnceLock::new(),
            aborts: Mutex::default(),
        })
    }

    /// Starts the thread, which polls until [`close`](Self::close).
    pub fn start_thread(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let watchdog = Arc::clone(self);
        let name = format!("rank {} watchdog", self.rank);
        std::thread::Builder::new().name(name).spawn(move || {
            let mut state = watchdog.lock_state();
            while !state.is_closed {
                let waited = watchdog.changed.wait_timeout(state, PERIOD);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
                watchdog.poll_calls();
                state = watchdog.lock_state();
            }
        })
    }

    /// Ends the thread.
    pub fn close(&self) {
        self.lock_state().is_closed = true;
        self.changed.notify_all();
    }

    /// Adds a communicator to be monitored.
    pub fn add_comm(&self, comm: Comm) {
        self.lock_state().comms.push(comm);
    }

    /// Marks `call` as being submitted until the guard is dropped: an error that is found meanwhile names it.
    pub fn begin_submission(&self, call: &str) -> Submission<'_> {
        self.lock_state().submitting = Some(call.into());
        Submission(self)
    }

    /// Monitors a submitted call until the event `end`, and keeps the data of a send, `held`, until then. Not during
    /// the capture of a CUDA graph, whose replays are monitored instead.
    pub fn watch_call(&self, call: String, end: DeviceEvent, held: Option<Arc<Buffer>>) {
        if self.device.is_capturing() {
            return;
        }
        let call = InFlightCall { call, since: Instant::now(), limit: self.timeout(), end, held };
        self.lock_state().in_flight.push_back(call);
    }

    /// Returns the failure after which no call can be issued any more.
    pub fn check_failure(&self) -> Result<(), CommError> {
        self.failure.get().map_or(Ok(()), |failure| Err(failure.clone()))
    }

    /// Checks like [`check_failure`](Self::check_failure); fails also if another rank has failed that `call` may wait
    /// for.
    pub fn check_peers(&self, call: &str) -> Result<(), CommError> {
        self.check_failure()?;
        match self.peers.failed_peer() {
            Some(failed) => Err(self.abort_communicators(peer_left(failed, call, String::new()))),
            None => Ok(()),
        }
    }

    /// Runs `calls` of the library, on communicators that are not aborted meanwhile.
    pub fn with_library<T>(
        &self,
        call: &str,
        calls: impl FnOnce(&dyn Library) -> Result<T, LibraryError>,
    ) -> Result<T, CommError> {
        let outcome = {
            let _held = self.library_calls.lock().unwrap_or_else(PoisonError::into_inner);
            self.check_failure()?;
            calls(&*self.library)
        };
        outcome.map_err(|error| self.report_failure(call, error.to_string()))
    }

    /// Aborts all communicators because of `problem` in `call`. Returns the first failure of the rank.
    pub fn report_failure(&self, call: &str, problem: String) -> CommError {
        let start = Instant::now();
        while self.failure.get().is_none() && start.elapsed() < DETECTION_TIME {
            if let Some(failed) = self.peers.failed_peer() {
                return self.abort_communicators(peer_left(failed, call, format!(" ({problem})")));
            }
            std::thread::sleep(PERIOD);
        }
        self.abort_communicators(CommError::Engine { rank: self.rank, call: call.into(), problem })
    }

    /// Announces the exit of the rank, and aborts all communicators if it has failed.
    pub fn leave(&self, exit: &RankExit) {
        self.peers.announce_exit(exit);
        if *exit != RankExit::Returned {
            self.abort_communicators(CommError::Closed { rank: self.rank });
        }
    }

    /// Begins to abort all communicators because of `error`. Returns the first failure of the rank.
    ///
    /// Each abort runs on a separate thread. It ends the operations of its communicator immediately, but returns only
    /// after all CUDA graphs with calls of the communicator are dropped. The rank drops them after this error, and
    /// waits for the operations of all communicators meanwhile.
    fn abort_communicators(&self, error: CommError) -> CommError {
        let failure = self.failure.get_or_init(|| error).clone();
        let comms = std::mem::take(&mut self.lock_state().comms);
        // Library calls in progress end first, and later ones are refused.
        drop(self.library_calls.lock().unwrap_or_else(PoisonError::into_inner));
        for comm in comms {
            let library = Arc::clone(&self.library);
            let abort = std::thread::Builder::new().name(format!("rank {} abort", self.rank));
            // A communicator that cannot be aborted is leaked.
            self.lock_aborts().extend(abort.spawn(move || library.abort_comm(comm)));
        }
        failure
    }

    /// Waits for the aborts of communicators, for a limited time.
    pub fn wait_for_aborts(&self) {
        let start = Instant::now();
        while self.lock_aborts().iter().any(|abort| !abort.is_finished())
            && start.elapsed() < ABORT_TIME
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until `comm` accepts calls.
    pub fn wait_until_ready(&self, comm: Comm, call: &str) -> Result<(), CommError> {
        let start = Instant::now();
        loop {
            self.check_peers(call)?;
            match self.with_library(call, |library| library.comm_state(comm))? {
                CommState::Ready => return Ok(()),
                CommState::Busy if start.elapsed() < SPIN_TIME => std::thread::yield_now(),
                CommState::Busy if start.elapsed() < self.timeout() => {
                    std::thread::sleep(Duration::from_micros(50));
                }
                CommState::Busy => return Err(self.time_out(call, self.timeout())),
            }
        }
    }

    /// Blocks the host until the event `end`, or a failure.
    pub fn wait_for_event(&self, end: &DeviceEvent) -> Result<(), CommError> {
        while !self.device.is_done(end) {
            self.check_failure()?;
            std::thread::sleep(Duration::from_micros(50));
        }
        self.check_failure()
    }

    /// Blocks until all submitted calls are complete, or have failed.
    pub fn wait_for_all(&self) -> Result<(), CommError> {
        loop {
            self.check_failure()?;
            let next = self.lock_state().in_flight.front().map(|next| next.end.clone());
            let Some(end) = next else { return Ok(()) };
            self.wait_for_event(&end)?;
            self.poll_calls();
        }
    }

    /// Timeout of a call that is submitted now.
    pub fn timeout(&self) -> Duration {
        let waits_for_files = self.waits_for_files.load(Ordering::Relaxed);
        if waits_for_files { self.timeout.max(FILE_TIME_LIMIT) } else { self.timeout }
    }

    /// Extends the timeout of calls that are submitted from now on to that for files, or restores it.
    pub fn extend_timeout(&self, waits_for_files: bool) {
        self.waits_for_files.store(waits_for_files, Ordering::Relaxed);
    }

    /// Aborts all communicators because `call` takes too long.
    fn time_out(&self, call: &str, limit: Duration) -> CommError {
        let waited = limit.as_secs_f64();
        let idle = self.peers.describe_idle();
        let problem = if idle.is_empty() {
            format!(
                "it was not complete after {waited} s: a rank has failed, or issues other calls; compare the last \
                 lines of all ranks"
            )
        } else {
            format!("it was not complete after {waited} s; the ranks without progress:{idle}")
        };
        self.report_failure(call, problem)
    }

    /// Releases the memory of completed calls, and checks communicators, peers and timeouts.
    fn poll_calls(&self) {
        let (comms, completed) = {
            let mut state = self.lock_state();
            let in_flight = std::mem::take(&mut state.in_flight);
            let (completed, in_flight): (VecDeque<_>, VecDeque<_>) =
                in_flight.into_iter().partition(|call| self.device.is_done(&call.end));
            state.in_flight = in_flight;
            (state.comms.clone(), completed)
        };
        // Freed outside of the lock.
        completed.into_iter().for_each(|call| drop(call.held));
        let next = {
            let state = self.lock_state();
            let next = state.in_flight.front().map(|next| next.call.clone());
            next.or_else(|| state.submitting.clone())
        };
        let next = next.as_deref().unwrap_or("next call");
        let has_failed =
            |comm: &Comm| self.with_library(next, |library| library.comm_state(*comm)).is_err();
        if comms.iter().any(has_failed) || self.check_peers(next).is_err() {
            return;
        }
        let is_late = |call: &&InFlightCall| call.since.elapsed() > call.limit;
        let late = self
            .lock_state()
            .in_flight
            .iter()
            .find(is_late)
            .map(|late| (late.call.clone(), late.limit));
        if let (Some((call, limit)), None) = (late, self.failure.get()) {
            self.time_out(&call, limit);
        }
    }

    /// Refuses further calls, and returns the communicators that were not aborted.
    pub fn take_comms(&self) -> Vec<Comm> {
        self.failure.get_or_init(|| CommError::Closed { rank: self.rank });
        std::mem::take(&mut self.lock_state().comms)
    }

    fn lock_aborts(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.aborts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_state(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the error of `call`, which cannot complete because another rank has ended.
fn peer_left((rank, exit): (usize, RankExit), call: &str, detail: String) -> CommError {
    CommError::PeerLeft { rank, exit, call: call.into(), detail }
}

//! Looks after the communicators of a rank, so that none of its calls waits for ever.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::backend::{Buffer, Device, Moment};
use crate::comm::{CommError, Departure, Peers};

use super::api::{self, Comm, Library, LibraryError};

/// How often it looks.
const PERIOD: Duration = Duration::from_millis(20);
/// How long word of a rank that has ended may take: the library may notice it first, and cannot say which rank it was.
const WORD_TIME: Duration = Duration::from_millis(500);
/// How long a communicator that is busy is polled without sleeping: the end of a group of calls takes less.
const SPIN_TIME: Duration = Duration::from_micros(200);

/// The communicators of a rank and what they are at.
#[derive(Debug)]
pub struct Watch {
    library: Arc<dyn Library>,
    device: Arc<dyn Device>,
    rank: usize,
    timeout: Duration,
    peers: Arc<dyn Peers>,
    /// Held while the library is at work on a communicator, which is not to be ended meanwhile.
    calls: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
    failure: OnceLock<CommError>,
}

#[derive(Debug, Default)]
struct State {
    comms: Vec<Comm>,
    /// The call that is being queued, which may have to wait for other ranks already.
    current: Option<String>,
    /// In the order in which they were queued, which is not that in which they end.
    flights: VecDeque<Flight>,
    /// Memory that calls use which are recorded.
    recorded: Vec<Arc<Buffer>>,
    is_closed: bool,
}

/// A call that was queued.
#[derive(Debug)]
struct Flight {
    call: String,
    since: Instant,
    end: Moment,
    /// Memory that is in use until then.
    held: Option<Arc<Buffer>>,
}

/// Ends with the queueing of a call.
pub struct Queueing<'a>(&'a Watch);

impl Drop for Queueing<'_> {
    fn drop(&mut self) {
        self.0.lock().current = None;
    }
}

impl Watch {
    pub fn new(
        library: Arc<dyn Library>,
        device: Arc<dyn Device>,
        rank: usize,
        timeout: Duration,
        peers: Arc<dyn Peers>,
    ) -> Arc<Watch> {
        let (state, changed, failure) = (Mutex::default(), Condvar::new(), OnceLock::new());
        let calls = Mutex::default();
        Arc::new(Watch { library, device, rank, timeout, peers, calls, state, changed, failure })
    }

    /// The thread, which looks until [`close`](Self::close).
    pub fn start(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let watch = Arc::clone(self);
        let name = format!("rank {} watch", self.rank);
        std::thread::Builder::new().name(name).spawn(move || {
            let mut state = watch.lock();
            while !state.is_closed {
                let waited = watch.changed.wait_timeout(state, PERIOD);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
                watch.look();
                state = watch.lock();
            }
        })
    }

    pub fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    pub fn add(&self, comm: Comm) {
        self.lock().comms.push(comm);
    }

    /// From now on `call` is being queued: an error that is found meanwhile names it.
    pub fn queueing(&self, call: &str) -> Queueing<'_> {
        self.lock().current = Some(call.into());
        Queueing(self)
    }

    /// The call that `end` completes was queued; `held` is kept until then. Of a call that is recorded, for which there is
    /// no such moment, it is kept until the [recording's end](Self::recorded), and its replays are watched.
    pub fn queued(&self, call: String, end: Moment, held: Option<Arc<Buffer>>) {
        if self.device.is_capturing() {
            self.lock().recorded.extend(held);
            return;
        }
        let flight = Flight { call, since: Instant::now(), end, held };
        self.lock().flights.push_back(flight);
    }

    /// A recording has ended.
    pub fn recorded(&self) {
        let held = std::mem::take(&mut self.lock().recorded);
        // Given back outside of the lock.
        drop(held);
    }

    /// Nothing, or why no call can be made any more.
    pub fn check(&self) -> Result<(), CommError> {
        self.failure.get().map_or(Ok(()), |failure| Err(failure.clone()))
    }

    /// As [`check`](Self::check), and whether another rank has ended that `call` may wait for.
    pub fn check_peers(&self, call: &str) -> Result<(), CommError> {
        self.check()?;
        match self.peers.lost() {
            Some(lost) => Err(self.end(left(lost, call, String::new()))),
            None => Ok(()),
        }
    }

    /// What `calls` make of the library, on communicators that do not end meanwhile.
    pub fn using<T>(
        &self,
        call: &str,
        calls: impl FnOnce(&dyn Library) -> Result<T, LibraryError>,
    ) -> Result<T, CommError> {
        let outcome = {
            let _held = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            self.check()?;
            calls(&*self.library)
        };
        outcome.map_err(|error| self.fail(call, error.to_string()))
    }

    /// Ends all communicators because of `problem` in `call`. Gives the first failure of the rank.
    pub fn fail(&self, call: &str, problem: String) -> CommError {
        let start = Instant::now();
        while self.failure.get().is_none() && start.elapsed() < WORD_TIME {
            if let Some(lost) = self.peers.lost() {
                return self.end(left(lost, call, format!(" ({problem})")));
            }
            std::thread::sleep(PERIOD);
        }
        self.end(CommError::Engine { rank: self.rank, call: call.into(), problem })
    }

    /// Ends all communicators as the rank has ended: at once where it has failed, for no other rank waits for it to.
    pub fn leave(&self, departure: &Departure) {
        self.peers.leave(departure);
        if *departure != Departure::Returned {
            self.end(CommError::Closed { rank: self.rank });
        }
    }

    /// Ends all communicators because of `error`. Gives the first failure of the rank.
    fn end(&self, error: CommError) -> CommError {
        let failure = self.failure.get_or_init(|| error).clone();
        let comms = std::mem::take(&mut self.lock().comms);
        let _held = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        comms.into_iter().for_each(|comm| self.library.abort(comm));
        failure
    }

    /// Waits until `comm` takes calls.
    pub fn settle(&self, comm: Comm, call: &str) -> Result<(), CommError> {
        let start = Instant::now();
        loop {
            self.check_peers(call)?;
            match self.using(call, |library| library.state(comm))? {
                api::State::Ready => return Ok(()),
                api::State::Busy if start.elapsed() < SPIN_TIME => std::thread::yield_now(),
                api::State::Busy if start.elapsed() < self.timeout => {
                    std::thread::sleep(Duration::from_micros(50));
                }
                api::State::Busy => return Err(self.late(call)),
            }
        }
    }

    /// The host waits for `end` of `call`, or its failure.
    pub fn wait(&self, end: &Moment) -> Result<(), CommError> {
        while !self.device.is_done(end) {
            self.check()?;
            std::thread::sleep(Duration::from_micros(50));
        }
        self.check()
    }

    /// Returns when everything that was queued is done, or has failed.
    pub fn wait_for_all(&self) -> Result<(), CommError> {
        loop {
            self.check()?;
            let next = self.lock().flights.front().map(|flight| flight.end.clone());
            let Some(end) = next else { return Ok(()) };
            self.wait(&end)?;
            self.look();
        }
    }

    /// How long a call may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Ends all communicators because `call` takes too long.
    pub fn late(&self, call: &str) -> CommError {
        let waited = self.timeout.as_secs_f64();
        let problem = format!(
            "it was not complete after {waited} s: a rank has failed, or makes other calls; look at the last lines of all \
             ranks"
        );
        self.fail(call, problem)
    }

    /// Everything that is in the hands of the library, once.
    fn look(&self) {
        let (comms, mut ended) = {
            let mut state = self.lock();
            let flights = std::mem::take(&mut state.flights);
            let (ended, flights): (VecDeque<_>, VecDeque<_>) =
                flights.into_iter().partition(|flight| self.device.is_done(&flight.end));
            state.flights = flights;
            (state.comms.clone(), ended)
        };
        // Given back outside of the lock.
        ended.drain(..).for_each(|flight| drop(flight.held));
        let next = {
            let state = self.lock();
            state
                .flights
                .front()
                .map(|flight| flight.call.clone())
                .or_else(|| state.current.clone())
        };
        let next = next.as_deref().unwrap_or("next call");
        let ask = |comm: &Comm| self.using(next, |library| library.state(*comm)).is_err();
        if comms.iter().any(ask) || self.check_peers(next).is_err() {
            return;
        }
        let is_late = |flight: &&Flight| flight.since.elapsed() > self.timeout;
        let late = self.lock().flights.iter().find(is_late).map(|flight| flight.call.clone());
        if let (Some(call), None) = (late, self.failure.get()) {
            self.late(&call);
        }
    }

    /// Communicators that were not ended; no more calls are made.
    pub fn take_comms(&self) -> Vec<Comm> {
        self.failure.get_or_init(|| CommError::Closed { rank: self.rank });
        std::mem::take(&mut self.lock().comms)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of `call`, which cannot complete because of a rank that has ended.
fn left((rank, departure): (usize, Departure), call: &str, detail: String) -> CommError {
    CommError::PeerLeft { rank, departure, call: call.into(), detail }
}

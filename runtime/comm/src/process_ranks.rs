//! The ranks of one launch that run in this process.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::trace::{self, Lane, Tracer};
use meshwright_backend::Device;
use meshwright_mesh::AxisSet;
use meshwright_mesh::MeshShape;
use meshwright_os::exit_code::REFUSED;

use super::accounting::Accounting;
use super::exposed_time::ExposedClock;
use super::flight::{FlightFolder, RankEnd};
use super::local::{LocalEngine, LocalGroups};
use super::rank_table::{ExitCause, RankTable};
use super::{CommError, Engine, LaunchOptions, Peers, RankExit, Timeline};

/// The ranks of one [`launch`](super::launch) that run in this process.
pub(super) struct ProcessRanks {
    shape: MeshShape,
    ranks: Arc<RankTable>,
    tracer: Option<Arc<Tracer>>,
    clocks: Vec<Arc<ExposedClock>>,
    local: Arc<LocalGroups>,
    flight: Option<Arc<FlightFolder>>,
    /// Engines by rank, in the order of their first use.
    engines: Mutex<HashMap<usize, Vec<Arc<dyn Engine>>>>,
}

impl ProcessRanks {
    /// Creates the ranks of a mesh.
    pub fn new(shape: MeshShape, options: &LaunchOptions) -> Arc<ProcessRanks> {
        let ranks = Arc::new(RankTable::new(shape.world_size(), options.timeout));
        let tracer = options.tracer.clone();
        let clock = |rank| {
            let lane =
                tracer.as_ref().map_or(Lane::disabled(), |t| t.rank_lane(rank, trace::COMPUTE));
            Arc::new(ExposedClock::new(lane))
        };
        let clocks = (0..shape.world_size()).map(clock).collect();
        let local = LocalGroups::new(&ranks);
        let (flight, engines) = (options.flight.clone(), Mutex::default());
        Arc::new(ProcessRanks { shape, ranks, tracer, clocks, local, flight, engines })
    }

    /// Creates the engine `local` of `rank`.
    pub fn local_engine(&self, rank: usize) -> Arc<dyn Engine> {
        let engine: Arc<dyn Engine> = Arc::new(LocalEngine::new(&self.local, rank));
        self.add_engine(rank, &engine);
        engine
    }

    /// Adds an engine that is notified when `rank` leaves.
    pub fn add_engine(&self, rank: usize, engine: &Arc<dyn Engine>) {
        self.lock_engines().entry(rank).or_default().push(Arc::clone(engine));
    }

    /// The mesh.
    pub fn shape(&self) -> &MeshShape {
        &self.shape
    }

    /// The clock of exposed communication of `rank`.
    pub fn clock(&self, rank: usize) -> &Arc<ExposedClock> {
        &self.clocks[rank]
    }

    /// Creates the accounting of `rank` in its group over `axes`.
    pub fn accounting(&self, rank: usize, axes: AxisSet) -> Accounting {
        let clock = Arc::clone(self.clock(rank));
        match &self.tracer {
            Some(tracer) => Accounting::traced(clock, tracer, rank, axes),
            None => Accounting::new(clock),
        }
    }

    /// Creates trace lanes for the streams of a device, if tracing is on.
    pub fn timeline(&self, rank: usize, device: Arc<dyn Device>) -> Option<Arc<Timeline>> {
        let tracer = Arc::clone(self.tracer.as_ref()?);
        Some(Timeline::new(device, tracer, rank))
    }

    /// Failure detection by `rank` among the ranks of this process.
    pub fn peers(self: &Arc<Self>, rank: usize) -> Arc<dyn Peers> {
        Arc::new(ThreadPeers { process_ranks: Arc::downgrade(self), rank })
    }

    /// Ends `rank`: ranks that wait for it, or will, get an error. Asynchronous calls that it has issued are completed
    /// first if it returned, and aborted if it failed.
    pub fn leave(&self, rank: usize, exit: RankExit) {
        self.ranks.note_exit(rank, exit.clone());
        let mut engines = self.lock_engines().remove(&rank).unwrap_or_default();
        while let Some(engine) = engines.pop() {
            engine.leave(&exit);
        }
        if self.ranks.deadlock.remove_running() {
            self.ranks.deadlock.report_deadlock();
        }
    }

    /// Returns true if the first rank that has ended by itself was refused its settings or input.
    pub fn is_refused(&self) -> bool {
        self.ranks.first_exit().is_some_and(|exit| exit.exit_code() == REFUSED)
    }

    /// Writes the last calls of `rank`, if they are wanted. `exit` is `None` for a rank that goes on.
    pub fn write_flight(&self, rank: usize, exit: Option<&RankExit>) {
        let Some(flight) = &self.flight else { return };
        let message = match exit {
            Some(RankExit::Failed { error, .. }) => Some(error.to_string()),
            Some(RankExit::Panicked(message)) => Some(format!("panic: {message}")),
            _ => None,
        };
        let end = RankEnd {
            has_returned: matches!(exit, Some(RankExit::Returned)),
            has_failed: message.is_some(),
            message,
            stopped_by: self.stopped_by(rank),
        };
        flight.write(rank, self.shape.world_size(), &self.clock(rank).recorder, end);
    }

    /// Notes that the end of another rank ends a wait of `rank`, and returns the error.
    pub fn stop_wait(&self, rank: usize, failed: (usize, RankExit), wait: &str) -> CommError {
        let cause = ExitCause { rank: failed.0, exit: failed.1 };
        self.ranks.note_stopped(rank, &cause);
        let (call, detail) = (wait.to_owned(), String::new());
        let error = CommError::PeerLeft { rank: cause.rank, exit: cause.exit, call, detail };
        self.clock(rank).recorder.note_failed_call(&error);
        error
    }

    /// Returns the rank whose exit stopped `rank`, if any.
    pub fn stopped_by(&self, rank: usize) -> Option<usize> {
        self.ranks.stopped_by(rank).map(|cause| cause.rank)
    }

    /// Returns the position of `rank` in the order of exits.
    pub fn exit_position(&self, rank: usize) -> usize {
        self.ranks.exit_position(rank)
    }

    fn lock_engines(&self) -> MutexGuard<'_, HashMap<usize, Vec<Arc<dyn Engine>>>> {
        self.engines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Failure detection among the ranks of a process.
struct ThreadPeers {
    process_ranks: Weak<ProcessRanks>,
    rank: usize,
}

impl Peers for ThreadPeers {
    fn failed_peer(&self) -> Option<(usize, RankExit)> {
        let cause = self.process_ranks.upgrade()?.ranks.first_failure(self.rank)?;
        Some((cause.rank, cause.exit))
    }

    /// Does nothing: the launcher records the exits of its ranks.
    fn announce_exit(&self, _: &RankExit) {}
}

impl fmt::Debug for ThreadPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the peers of rank {}", self.rank)
    }
}

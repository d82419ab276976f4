//! The MPI engine of one rank.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use meshwright_backend::CachingAllocator;
use meshwright_mesh::MeshShape;

use crate::group_member::axes_of_several;
use crate::{CommError, Engine, GroupMember, Peers, ProcessGroup, RankExit};

use super::driver::{EngineEnd, MpiDriver};
use super::group::{MpiGroup, MpiShared};
use super::groups::{GroupIndices, MpiGroups};
use super::library::{MpiLibrary, MpiResult};
use super::scratch::ScratchAllocator;

/// Period of checks of peers during the start.
const CHECK_PERIOD: Duration = Duration::from_millis(20);
/// The least time limit of the start, in which processes connect to each other.
const START_TIME: Duration = Duration::from_secs(60);
/// Time for the library to end, after all ranks have finished.
const FINALIZE_TIME: Duration = Duration::from_secs(10);

/// Settings of the engine of one rank.
#[derive(Debug, Clone)]
pub struct MpiSettings {
    /// The mesh.
    pub shape: MeshShape,
    /// World rank.
    pub rank: usize,
    /// Time limit of each call, and of the start if it is longer than a minute.
    pub timeout: Duration,
    /// Failure detection.
    pub peers: Arc<dyn Peers>,
}

/// A start that has failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MpiStartError {
    /// This process was started in another way than MPI needs.
    #[error("{0}")]
    Refused(String),
    /// Another rank has failed, or the library has.
    #[error(transparent)]
    Failed(#[from] CommError),
}

/// The MPI engine of one rank, a process.
pub struct MpiEngine {
    shape: MeshShape,
    groups: GroupIndices,
    peers: Arc<dyn Peers>,
    shared: Arc<MpiShared>,
    /// Notified when all calls have ended, and when the use of MPI has; taken by the first end of the rank.
    ended: Mutex<Option<Receiver<()>>>,
}

impl MpiEngine {
    /// Initializes MPI, and creates the communicators of the rank. Every rank of the mesh calls it, and waits for the
    /// others.
    ///
    /// # Errors
    /// If MPI has started another number of processes, if it is initialized already, if a rank fails meanwhile, and
    /// after the time limit.
    pub fn new(settings: MpiSettings) -> Result<Arc<MpiEngine>, MpiStartError> {
        let MpiSettings { shape, rank, timeout, ref peers } = settings;
        let (started, start) = sync_channel(1);
        let (end, ended) = sync_channel(2);
        let (failure, scratch) = (Arc::new(OnceLock::new()), Arc::new(ScratchAllocator::new()));
        let run = {
            let (peers, failure, scratch) =
                (Arc::clone(peers), Arc::clone(&failure), Arc::clone(&scratch));
            move || {
                let driver = start_library(&shape, rank).map(|(library, groups, indices)| {
                    let at = (library, groups);
                    (indices, Arc::new(MpiDriver::new(rank, at, scratch, peers, failure)))
                });
                let thread = driver.as_ref().ok().map(|(_, driver)| Arc::clone(driver));
                // Nothing waits for a start that has taken too long.
                if let (Ok(()), Some(driver)) = (started.send(driver), thread) {
                    let library = driver.advance_others();
                    let _ = end.send(());
                    if let Some(library) = library {
                        library.finalize();
                    }
                    let _ = end.send(());
                }
            }
        };
        let failed = |problem: String| CommError::Engine { rank, call: STARTING.into(), problem };
        thread::Builder::new()
            .name(format!("rank {rank} mpi"))
            .spawn(run)
            .map_err(|error| failed(format!("its thread could not be started: {error}")))?;
        let (groups, driver) = wait_for_start(&start, &settings)?;
        let waits_for_files = AtomicBool::new(false);
        let shared =
            Arc::new(MpiShared { rank, timeout, waits_for_files, driver, scratch, failure });
        let (peers, ended) = (Arc::clone(peers), Mutex::new(Some(ended)));
        Ok(Arc::new(MpiEngine { shape, groups, peers, shared, ended }))
    }
}

/// The start, in error messages.
const STARTING: &str = "start of MPI";

/// The groups and the driver, or the reason why this process cannot be a rank.
type Started = Result<(GroupIndices, Arc<MpiDriver>), String>;

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

/// Initializes the library on the thread of the engine, which also has to end its use.
fn start_library(
    shape: &MeshShape,
    rank: usize,
) -> MpiResult<(MpiLibrary, MpiGroups, GroupIndices)> {
    if is_set("OMPI_COMM_WORLD_SIZE") && !is_set("HOME") {
        return Err(
            "HOME is not set, without which Open MPI ends the process; set it to a folder".into()
        );
    }
    let library = MpiLibrary::initialize()?;
    let (ranks, processes) = (shape.world_size(), library.size(library.world())?);
    if processes != ranks {
        return Err(format!(
            "MPI has started {processes} process{} together, but the run has {ranks} ranks: start it by the mpirun or \
             mpiexec of the MPI library that this program was built with, as in `mpirun -n {ranks} ..`",
            if processes == 1 { "" } else { "es" }
        ));
    }
    let (groups, indices) = MpiGroups::create(&library, shape, rank)?;
    Ok((library, groups, indices))
}

/// Waits until the thread has started the library, which waits for the other ranks.
fn wait_for_start(
    start: &Receiver<Started>,
    settings: &MpiSettings,
) -> Result<(GroupIndices, Arc<MpiDriver>), MpiStartError> {
    let (begin, rank) = (Instant::now(), settings.rank);
    let failed = |problem: String| CommError::Engine { rank, call: STARTING.into(), problem };
    loop {
        match start.recv_timeout(CHECK_PERIOD) {
            Ok(started) => return started.map_err(MpiStartError::Refused),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(failed("its thread has panicked".into()).into());
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some((rank, exit)) = settings.peers.failed_peer() {
            let (call, detail) = (STARTING.into(), String::new());
            return Err(CommError::PeerLeft { rank, exit, call, detail }.into());
        }
        let limit = settings.timeout.max(START_TIME);
        if begin.elapsed() > limit {
            let waited = limit.as_secs_f64();
            return Err(failed(format!("not all processes have come to it in {waited} s")).into());
        }
    }
}

impl Engine for MpiEngine {
    fn process_group(&self, member: &Arc<GroupMember>) -> Arc<dyn ProcessGroup> {
        let axes = axes_of_several(&self.shape, member.axes());
        Arc::new(MpiGroup {
            member: Arc::clone(member),
            // The communicators of every set of axes exist.
            index: self.groups[&axes],
            shared: Arc::clone(&self.shared),
        })
    }

    fn leave(&self, exit: &RankExit) {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        if *exit == RankExit::Returned {
            self.shared.driver.end(EngineEnd::Finish(self.shared.time_limit()));
            if let Some(ended) = ended {
                // Calls and the wait for the other ranks have time limits of their own.
                let _ = ended.recv();
                let _ = ended.recv_timeout(FINALIZE_TIME);
            }
            return self.peers.announce_exit(exit);
        }
        self.peers.announce_exit(exit);
        self.shared.abort();
        ended.map(|ended| ended.recv_timeout(FINALIZE_TIME));
    }

    fn use_allocator(&self, allocator: &Arc<CachingAllocator>) {
        self.shared.scratch.use_allocator(allocator);
    }

    fn extend_time_limit(&self, waits_for_files: bool) {
        self.shared.waits_for_files.store(waits_for_files, Ordering::Relaxed);
    }
}

//! The MPI engine of one rank.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use meshwright_backend::{CachingAllocator, Category};
use meshwright_mesh::MeshShape;

use crate::accounting::TransferStart;
use crate::blocks::run_of;
use crate::group_member::axes_of_several;
use crate::{
    Call, CommError, CommOp, Completion, Engine, FILE_TIME_LIMIT, GroupMember, Operands, Peers,
    ProcessGroup, RankExit,
};

use super::groups::{GroupIndices, Groups};
use super::job::{Job, Reply};
use super::library::Library;
use super::memory::CallMemory;
use super::progress::{Progress, Request};
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
    shared: Arc<Shared>,
    /// Notified when the thread has ended; taken by the first end of the rank.
    ended: Mutex<Option<Receiver<()>>>,
}

/// State of the rank's groups.
struct Shared {
    rank: usize,
    timeout: Duration,
    /// Set while calls are issued that may wait for files.
    waits_for_files: AtomicBool,
    requests: Sender<Request>,
    scratch: Arc<ScratchAllocator>,
    failure: Arc<OnceLock<CommError>>,
}

impl MpiEngine {
    /// Initializes MPI, and creates the communicators of the rank. Every rank of the mesh calls it, and waits for the
    /// others.
    ///
    /// # Errors
    /// If MPI has started another number of processes, if it is initialized already, if a rank fails meanwhile, and after
    /// the time limit.
    pub fn new(settings: MpiSettings) -> Result<Arc<MpiEngine>, MpiStartError> {
        let MpiSettings { shape, rank, timeout, ref peers } = settings;
        let (requests, received) = channel();
        let (started, start) = sync_channel(1);
        let (end, ended) = sync_channel(1);
        let (failure, scratch) = (Arc::new(OnceLock::new()), Arc::new(ScratchAllocator::new()));
        let run = {
            let (peers, failure, scratch) =
                (Arc::clone(peers), Arc::clone(&failure), Arc::clone(&scratch));
            move || {
                if let Some((library, groups)) = start_library(&shape, rank, &started) {
                    let progress = Progress::new(rank, (library, groups), scratch, peers, failure);
                    progress.run(&received);
                }
                let _ = end.send(());
            }
        };
        let failed = |problem: String| CommError::Engine { rank, call: STARTING.into(), problem };
        thread::Builder::new()
            .name(format!("rank {rank} mpi"))
            .spawn(run)
            .map_err(|error| failed(format!("its thread could not be started: {error}")))?;
        let groups = wait_for_start(&start, &settings)?;
        let waits_for_files = AtomicBool::new(false);
        let shared =
            Arc::new(Shared { rank, timeout, waits_for_files, requests, scratch, failure });
        let (peers, ended) = (Arc::clone(peers), Mutex::new(Some(ended)));
        Ok(Arc::new(MpiEngine { shape, groups, peers, shared, ended }))
    }
}

/// The start, in error messages.
const STARTING: &str = "the start of MPI";

type Started = Result<GroupIndices, String>;

/// Initializes the library on its thread, and reports the groups, or the reason why this process cannot be a rank.
fn start_library(
    shape: &MeshShape,
    rank: usize,
    started: &SyncSender<Started>,
) -> Option<(Library, Groups)> {
    let start = || {
        let library = Library::initialize()?;
        let (ranks, processes) = (shape.world_size(), library.size(library.world())?);
        if processes != ranks {
            return Err(format!(
                "MPI has started {processes} process{} together, but the run has {ranks} ranks: start it by the mpirun \
                 or mpiexec of the MPI library that this program was built with, as in `mpirun -n {ranks} ..`",
                if processes == 1 { "" } else { "es" }
            ));
        }
        let (groups, indices) = Groups::create(&library, shape, rank)?;
        Ok((library, groups, indices))
    };
    match start() {
        Ok((library, groups, indices)) => {
            let _ = started.send(Ok(indices));
            Some((library, groups))
        }
        Err(problem) => {
            let _ = started.send(Err(problem));
            None
        }
    }
}

/// Waits until the thread has started the library, which waits for the other ranks.
fn wait_for_start(
    start: &Receiver<Started>,
    settings: &MpiSettings,
) -> Result<GroupIndices, MpiStartError> {
    let (begin, rank) = (Instant::now(), settings.rank);
    let failed = |problem: String| CommError::Engine { rank, call: STARTING.into(), problem };
    loop {
        match start.recv_timeout(CHECK_PERIOD) {
            Ok(groups) => return groups.map_err(MpiStartError::Refused),
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
            let limit = self.shared.time_limit();
            let _ = self.shared.requests.send(Request::Finish(limit));
            // Calls have time limits of their own, which end the thread too.
            let longest = limit.max(FILE_TIME_LIMIT) + FINALIZE_TIME;
            ended.map(|ended| ended.recv_timeout(longest));
            return self.peers.announce_exit(exit);
        }
        self.peers.announce_exit(exit);
        let closed = CommError::Closed { rank: self.shared.rank };
        self.shared.failure.get_or_init(|| closed);
        let _ = self.shared.requests.send(Request::Abort);
        ended.map(|ended| ended.recv_timeout(FINALIZE_TIME));
    }

    fn use_allocator(&self, allocator: &Arc<CachingAllocator>) {
        self.shared.scratch.use_allocator(allocator);
    }

    fn extend_time_limit(&self, waits_for_files: bool) {
        self.shared.waits_for_files.store(waits_for_files, Ordering::Relaxed);
    }
}

impl Shared {
    /// Time limit of a call that is issued now.
    fn time_limit(&self) -> Duration {
        let waits_for_files = self.waits_for_files.load(Ordering::Relaxed);
        if waits_for_files { self.timeout.max(FILE_TIME_LIMIT) } else { self.timeout }
    }

    fn closed(&self) -> CommError {
        let closed = CommError::Closed { rank: self.rank };
        self.failure.get().cloned().unwrap_or(closed)
    }
}

/// A rank in a process group.
struct MpiGroup {
    member: Arc<GroupMember>,
    /// Index of the communicators.
    index: usize,
    shared: Arc<Shared>,
}

impl ProcessGroup for MpiGroup {
    fn issue(&self, call: &Arc<Call>, operands: Operands<'_>) -> Completion {
        if call.on_device {
            return Completion::completed(Err(call.refuse("MPI moves host memory only")));
        }
        if let Some(failure) = self.shared.failure.get() {
            return Completion::completed(Err(failure.clone()));
        }
        match (&call.op, operands) {
            (op, operands) if self.member.size() == 1 && !op.is_point_to_point() => {
                self.run_alone(call, operands)
            }
            (CommOp::Send { .. }, operands) => self.send(call, operands),
            (_, operands @ Operands::Borrowed { .. }) => self.run(call, operands),
            (_, Operands::Owned { src, dst }) => {
                let (promise, completion) = Completion::promised(self.member.world_rank());
                let in_place = src.is_none();
                let memory = CallMemory::owned(src, dst);
                // A refused call drops its promise, which reports that the rank has left.
                let _ = self.submit(call, memory, in_place, Reply::Asynchronous(promise));
                completion
            }
        }
    }
}

impl MpiGroup {
    /// Carries out a collective of a group of one rank.
    fn run_alone(&self, call: &Call, mut operands: Operands<'_>) -> Completion {
        let start = TransferStart::blocking(Instant::now());
        if let (Some(src), Some(mut dst)) = operands.views_mut() {
            dst.bytes_mut().copy_from_slice(src.bytes());
        }
        self.member.accounting.finish_transfer(call, start);
        let (_, dst) = operands.into_buffers();
        Completion::completed(Ok(dst))
    }

    /// Starts a message. Neither form waits for the receiver: the engine keeps the data until then.
    fn send(&self, call: &Arc<Call>, operands: Operands<'_>) -> Completion {
        let data = match operands {
            Operands::Borrowed { src: Some(data), .. } => {
                let (dtype, len) = (data.dtype(), data.len());
                let mut copy = self.shared.scratch.get().alloc(dtype, len, Category::Communication);
                copy.view_mut().bytes_mut().copy_from_slice(data.bytes());
                Some(Arc::new(copy))
            }
            operands => operands.into_buffers().0,
        };
        let memory = CallMemory::owned(data, None);
        Completion::completed(self.submit(call, memory, false, Reply::None).map(|()| None))
    }

    /// Carries out a blocking call.
    fn run(&self, call: &Arc<Call>, mut operands: Operands<'_>) -> Completion {
        let in_place = matches!(&operands, Operands::Borrowed { src: None, .. });
        let written = self.written_elements(&call.op, &operands);
        let allocator = self.shared.scratch.get();
        // SAFETY: this function returns after the reply.
        let memory = unsafe { CallMemory::lent(&operands, written.is_some(), allocator) };
        let (reply, outcome) = sync_channel(1);
        let submitted = self.submit(call, memory, in_place, Reply::Blocking(reply));
        let outcome =
            submitted.and_then(|()| outcome.recv().unwrap_or_else(|_| Err(self.shared.closed())));
        let copied = outcome.map(|result| {
            if let (Some(elements), Some(result), (_, Some(mut dst))) =
                (written, result, operands.views_mut())
            {
                let from = result.view().slice(elements.clone());
                dst.slice(elements).bytes_mut().copy_from_slice(from.bytes());
            }
            None
        });
        Completion::completed(copied)
    }

    /// Returns the elements of the destination that a blocking call writes on this member, if any.
    fn written_elements(&self, op: &CommOp, operands: &Operands<'_>) -> Option<Range<usize>> {
        let own = self.member.group_rank();
        let (src, dst) = operands.views();
        let len = dst?.len();
        match op {
            CommOp::Broadcast { root, .. } if root.group_rank == own => None,
            CommOp::Reduce { root, .. } if root.group_rank != own => None,
            CommOp::ReduceScatter { blocks } if src.is_none() => Some(run_of(&blocks.lens, own)),
            _ => Some(0..len),
        }
    }

    fn submit(
        &self,
        call: &Arc<Call>,
        memory: CallMemory,
        in_place: bool,
        reply: Reply,
    ) -> Result<(), CommError> {
        let job = Job {
            call: Arc::clone(call),
            member: Arc::clone(&self.member),
            group: self.index,
            memory,
            in_place,
            reply,
            issued: Instant::now(),
            limit: self.shared.time_limit(),
        };
        let sent = self.shared.requests.send(Request::Call(Box::new(job)));
        sent.map_err(|_| self.shared.closed())
    }
}

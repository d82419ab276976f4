//! The calls of a rank.
//!
//! In progress are the first blocking and the first asynchronous collective of each group, because collectives of one
//! kind have to match in their order, and all messages.

use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use meshwright_backend::OutOfMemory;

use crate::{CommError, Peers};

use super::exchange::CallTag;
use super::failure::NumberedCall;
use super::groups::{MpiCommKind, MpiGroups};
use super::job::{MpiJob, RunningMpiJob};
use super::library::MpiLibrary;
use super::scratch::ScratchAllocator;
use super::tags::CallTags;

/// Period of checks of peers and time limits.
const CHECK_PERIOD: Duration = Duration::from_millis(5);

/// Sleep between tests.
pub const SLEEP: Duration = Duration::from_micros(50);

/// The calls of a rank, which one thread at a time advances.
pub struct MpiProgress {
    /// World rank.
    rank: usize,
    issued: Receiver<Box<MpiJob>>,
    library: MpiLibrary,
    groups: MpiGroups,
    tags: CallTags,
    /// Blocking and asynchronous collectives, by group.
    queues: Vec<[Queue; 2]>,
    /// Messages, in the order of their issue.
    messages: VecDeque<RunningMpiJob>,
    scratch: Arc<ScratchAllocator>,
    peers: Arc<dyn Peers>,
    /// The first failure, after which no MPI call is made.
    failure: Arc<OnceLock<CommError>>,
    last_check: Instant,
}

/// The collectives of one kind of a group, in the order of their issue.
#[derive(Default)]
struct Queue {
    running: Option<RunningMpiJob>,
    waiting: VecDeque<MpiJob>,
    /// Collectives that have begun so far.
    begun: u64,
}

impl MpiProgress {
    /// Creates the state of a rank without calls.
    pub fn new(
        rank: usize,
        (library, groups): (MpiLibrary, MpiGroups),
        issued: Receiver<Box<MpiJob>>,
        scratch: Arc<ScratchAllocator>,
        (peers, failure): (Arc<dyn Peers>, Arc<OnceLock<CommError>>),
    ) -> MpiProgress {
        MpiProgress {
            rank,
            issued,
            tags: CallTags::new(library.largest_tag),
            queues: groups.comms.iter().map(|_| Default::default()).collect(),
            library,
            groups,
            messages: VecDeque::new(),
            scratch,
            peers,
            failure,
            last_check: Instant::now(),
        }
    }

    /// Returns true if no call is in progress, or was when the issued calls were last taken.
    pub fn is_idle(&self) -> bool {
        let is_empty = |queue: &Queue| queue.running.is_none() && queue.waiting.is_empty();
        self.messages.is_empty() && self.queues.iter().flatten().all(is_empty)
    }

    /// Adds the issued calls.
    fn add_issued(&mut self) {
        while let Ok(job) = self.issued.try_recv() {
            self.add(*job);
        }
    }

    fn add(&mut self, job: MpiJob) {
        if !job.call.op.is_point_to_point() {
            let kind = usize::from(job.call.asynchronous);
            return self.queues[job.group][kind].waiting.push_back(job);
        }
        let tag =
            CallTag { own: self.tags.of_message(&job.call), matches: CallTags::match_messages };
        self.messages.push_back(RunningMpiJob::begin(job, (tag, 0), self.scratch.get()));
    }

    /// Advances all calls. Returns true if anything was done; a failure ends all of them, also further ones.
    pub fn advance(&mut self) -> bool {
        if let Some(failure) = self.failure.get().cloned() {
            self.refuse_all(&failure);
            return false;
        }
        let advanced = catch_unwind(AssertUnwindSafe(|| {
            self.add_issued();
            let has_advanced = self.advance_collectives()? | self.advance_messages()?;
            if !has_advanced {
                self.check()?;
            }
            Ok::<_, CommError>(has_advanced)
        }));
        let error = match advanced {
            Ok(Ok(has_advanced)) => return has_advanced,
            Ok(Err(error)) => error,
            Err(payload) => {
                // The panic of an assertion has printed its message.
                let problem = match payload.downcast::<OutOfMemory>() {
                    Ok(error) => error.to_string(),
                    Err(_) => "its thread has panicked".to_owned(),
                };
                CommError::Engine { rank: self.rank, call: "a call over MPI".into(), problem }
            }
        };
        let error = self.failure.get_or_init(|| error).clone();
        self.fail_all(|call| match &error {
            CommError::PeerLeft { rank, exit, detail, .. } => {
                call.peer_left((*rank, exit.clone()), detail.clone())
            }
            other => other.clone(),
        });
        true
    }

    fn advance_collectives(&mut self) -> Result<bool, CommError> {
        let mut has_advanced = false;
        for (group, queues) in self.queues.iter_mut().enumerate() {
            for (queue, kind) in
                queues.iter_mut().zip([MpiCommKind::Blocking, MpiCommKind::Asynchronous])
            {
                let comm = self.groups.comm(group, kind);
                while queue.begin_next(&mut self.tags, &self.scratch) {
                    let Some(running) = &mut queue.running else { break };
                    let advanced = running.advance(&self.library, comm);
                    has_advanced |= advanced.map_err(|error| {
                        running.call().failed_exchange(error, &self.tags, &*self.peers)
                    })?;
                    if !running.is_complete() {
                        break;
                    }
                    queue.running.take().into_iter().for_each(RunningMpiJob::finish);
                }
            }
        }
        Ok(has_advanced)
    }

    fn advance_messages(&mut self) -> Result<bool, CommError> {
        let mut has_advanced = false;
        // A receive waits for the earlier ones from the same member.
        let mut awaited = BTreeSet::new();
        let mut index = 0;
        while let Some(message) = self.messages.get_mut(index) {
            let comm = self.groups.comm(message.group(), MpiCommKind::Message);
            let sender = |message: &RunningMpiJob| {
                message.awaited_peer().map(|peer| (message.group(), peer))
            };
            if sender(message).is_some_and(|sender| awaited.contains(&sender)) {
                index += 1;
                continue;
            }
            let advanced = message.advance(&self.library, comm);
            awaited.extend(sender(message));
            has_advanced |= advanced
                .map_err(|error| message.call().failed_exchange(error, &self.tags, &*self.peers))?;
            if message.is_complete() {
                self.messages.remove(index).into_iter().for_each(RunningMpiJob::finish);
            } else {
                index += 1;
            }
        }
        Ok(has_advanced)
    }

    /// Checks peers and time limits, from time to time.
    fn check(&mut self) -> Result<(), CommError> {
        if self.last_check.elapsed() < CHECK_PERIOD {
            return Ok(());
        }
        self.last_check = Instant::now();
        let failed = self.peers.failed_peer();
        for running in self.running() {
            if let Some(failed) = &failed {
                return Err(running.call().peer_left(failed.clone(), String::new()));
            }
            if running.is_late() {
                return Err(running.timed_out(&self.peers.describe_idle()));
            }
        }
        Ok(())
    }

    fn running(&self) -> impl Iterator<Item = &RunningMpiJob> {
        let collectives = self.queues.iter().flatten().filter_map(|queue| queue.running.as_ref());
        collectives.chain(&self.messages)
    }

    /// Ends all calls with an error of their own.
    fn fail_all(&mut self, error_of: impl Fn(NumberedCall<'_>) -> CommError) {
        let mut running = Vec::from(std::mem::take(&mut self.messages));
        let mut waiting = Vec::new();
        for queue in self.queues.iter_mut().flatten() {
            running.extend(queue.running.take());
            waiting.extend(std::mem::take(&mut queue.waiting));
        }
        for job in running {
            let error = error_of(job.call());
            job.fail(error);
        }
        for job in waiting {
            let error = error_of(job.numbered());
            job.refuse(error);
        }
    }

    /// Ends all calls with the failure of the rank.
    fn refuse_all(&mut self, failure: &CommError) {
        self.fail_all(|_| failure.clone());
        while let Ok(job) = self.issued.try_recv() {
            job.refuse(failure.clone());
        }
    }

    /// Waits for the other ranks, and returns the library; not after a failure of one, for which MPI would wait.
    pub fn finish(self, limit: Duration) -> Option<MpiLibrary> {
        if self.failure.get().is_some() {
            return None;
        }
        let start = Instant::now();
        let mut requests = [self.library.barrier(self.groups.all).ok()?];
        while self.library.test(&mut requests).ok()?.is_empty() {
            if start.elapsed() > limit || self.peers.failed_peer().is_some() {
                return None;
            }
            thread::sleep(SLEEP);
        }
        Some(self.library)
    }
}

impl Queue {
    /// Begins the next call if none is running. Returns false if there is none.
    fn begin_next(&mut self, tags: &mut CallTags, scratch: &ScratchAllocator) -> bool {
        if self.running.is_none()
            && let Some(job) = self.waiting.pop_front()
        {
            self.begun += 1;
            let own = tags.of_collective(&job.call, self.begun);
            let tag = CallTag { own, matches: |sent, expected| sent == expected };
            self.running = Some(RunningMpiJob::begin(job, (tag, self.begun), scratch.get()));
        }
        self.running.is_some()
    }
}

//! The rendezvous of the members of a group, one call after the other.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::CommError;
use crate::accounting::{Accounting, TransferStart};
use crate::call::Call;
use crate::exposed_time::ExposedClock;
use crate::rank_table::ExitCause;
use crate::sync::{AtomicUsize, DeadlockDetector, Monitor, Ordering};
use meshwright_backend::DeviceEvent;

use super::device_stream::DeviceStream;
use super::group_status::{GroupStatus, Interruption};
use super::operand::MemberOperand;

/// A sequence of rendezvous. A group has one for blocking and one for asynchronous collectives.
pub struct RendezvousChannel {
    monitor: Monitor<ChannelState>,
}

struct ChannelState {
    /// Contributions to the next rendezvous, of the members that have arrived.
    contributions: Vec<Option<Contribution>>,
    /// Number of rendezvous so far, and the last of them. All members have picked it up before the next is complete.
    completed: u64,
    last: Option<Arc<Rendezvous>>,
    /// Exits of members; without them no rendezvous takes place any more.
    exits: Vec<Option<ExitCause>>,
}

/// The call and operand of one member.
pub struct Contribution {
    pub call: Arc<Call>,
    pub operand: MemberOperand,
    /// Event after which an operand in device memory may be used.
    pub ready: Option<DeviceEvent>,
    /// The clock of the rank's main thread, in an asynchronous call.
    pub clock: Option<Arc<ExposedClock>>,
}

/// A member that takes part in a rendezvous.
pub struct Participant<'a> {
    pub group_rank: usize,
    pub call: &'a Arc<Call>,
    pub accounting: &'a Arc<Accounting>,
    /// The stream of its work, if the operands are in device memory.
    pub stream: Option<DeviceStream>,
}

impl Participant<'_> {
    /// Counts the time since `start` as blocked, if the main thread itself participates.
    pub fn add_blocked_since(&self, start: Instant) {
        if !self.call.asynchronous {
            self.accounting.add_blocked_since(start);
        }
    }
}

/// The matching contributions of all members.
pub struct Rendezvous {
    pub contributions: Vec<Contribution>,
    begin: Instant,
    /// The readings of the members' exposed clocks at that time, in an asynchronous call.
    exposed: Vec<Duration>,
    /// Set if any operand is lent.
    pub has_lent_memory: bool,
    /// Number of members that are done with the others' memory, or have submitted all work on it.
    done: AtomicUsize,
    /// Events at the end of the members' work on their streams.
    pub ends: Box<[OnceLock<DeviceEvent>]>,
}

impl Rendezvous {
    /// Returns the start of the transfer of `member`.
    pub fn transfer_start(&self, member: usize) -> TransferStart {
        let exposed = self.exposed.get(member).copied().unwrap_or_default();
        TransferStart { at: self.begin, exposed }
    }
}

impl RendezvousChannel {
    /// Creates a channel; `exits` has one entry per member.
    pub fn new(
        exits: Vec<Option<ExitCause>>,
        deadlock: &Arc<DeadlockDetector>,
    ) -> RendezvousChannel {
        let contributions = exits.iter().map(|_| None).collect();
        let state = ChannelState { contributions, completed: 0, last: None, exits };
        RendezvousChannel { monitor: Monitor::new(state, deadlock) }
    }

    /// Waits until all members have contributed, and compares their calls. After it has returned a rendezvous, the
    /// member must call [`finish_rendezvous`](Self::finish_rendezvous), which a
    /// [`Participation`](super::participation::Participation) guarantees.
    pub fn join_rendezvous(
        &self,
        group: &GroupStatus,
        contribution: Contribution,
        participant: &Participant<'_>,
    ) -> Result<Arc<Rendezvous>, CommError> {
        let (member, call) = (participant.group_rank, participant.call);
        let mut state = self.monitor.lock();
        if let Some(interruption) = state.interruption(group) {
            drop(state);
            return Err(group.interrupted(interruption, call, member));
        }
        if state.contributions[member].is_some() {
            return Err(call.refuse(
                "another thread of this rank is inside a call of the same group; issue the calls of a rank from one \
                 thread",
            ));
        }
        state.contributions[member] = Some(contribution);
        if state.contributions.iter().all(Option::is_some) {
            let outcome = state.complete(group);
            self.monitor.notify_all(state);
            return outcome;
        }

        let completed = state.completed;
        let start = Instant::now();
        let outcome = self.monitor.wait(state, group.time_limit(member), |state, timed_out| {
            if state.completed > completed {
                return Some(Ok(Arc::clone(state.last.as_ref()?)));
            }
            let timeout = || timed_out.then(|| Interruption::TimedOut(state.missing_members()));
            let interruption = state.interruption(group).or_else(timeout)?;
            // From here on no member can reach the memory that was to be lent.
            state.contributions[member] = None;
            Some(Err(interruption))
        });
        participant.add_blocked_since(start);
        outcome.map_err(|interruption| group.interrupted(interruption, call, member))
    }

    /// Counts a member that is done with the others' memory. If it has `lent` its own, waits until all members are
    /// done, and returns since when it waited.
    pub fn finish_rendezvous(&self, rendezvous: &Rendezvous, lent: bool) -> Option<Instant> {
        let (done, members) = (&rendezvous.done, rendezvous.contributions.len());
        // Release the reads and writes of this member; waiting members acquire them.
        if done.fetch_add(1, Ordering::AcqRel) + 1 == members {
            self.notify_all();
            return None;
        }
        if !lent || done.load(Ordering::Acquire) == members {
            return None;
        }
        let start = Instant::now();
        // Without a limit: every other member is inside the engine and works.
        self.monitor.wait(self.monitor.lock(), Duration::MAX, |_, _| {
            (done.load(Ordering::Acquire) == members).then_some(())
        });
        Some(start)
    }

    /// Notifies all waiting members.
    pub fn notify_all(&self) {
        self.monitor.notify_all(self.monitor.lock());
    }

    /// Interrupts all further rendezvous because of the exit of `member`.
    pub fn leave(&self, member: usize, cause: &ExitCause) {
        let mut state = self.monitor.lock();
        state.exits[member].get_or_insert_with(|| cause.clone());
        self.monitor.notify_all(state);
    }
}

impl ChannelState {
    fn interruption(&self, group: &GroupStatus) -> Option<Interruption> {
        if let Some(failure) = group.failure() {
            return Some(Interruption::Failed(failure.clone()));
        }
        let mut exits = self.exits.iter().enumerate();
        exits.find_map(|(member, cause)| Some(Interruption::Left(member, cause.clone()?)))
    }

    fn missing_members(&self) -> Vec<usize> {
        let members = 0..self.contributions.len();
        members.filter(|member| self.contributions[*member].is_none()).collect()
    }

    /// Completes a rendezvous at which all members have arrived, or fails the group if their calls do not match.
    fn complete(&mut self, group: &GroupStatus) -> Result<Arc<Rendezvous>, CommError> {
        let contributions: Vec<Contribution> =
            self.contributions.iter_mut().filter_map(Option::take).collect();
        let calls: Vec<(usize, &Call)> =
            contributions.iter().map(|contribution| &*contribution.call).enumerate().collect();
        if let Some(difference) = Call::first_difference(&calls) {
            return Err(group.mismatch(&calls, self.completed + 1, difference));
        }
        let begin = Instant::now();
        let clocks = contributions.iter().filter_map(|contribution| contribution.clock.as_ref());
        let rendezvous = Arc::new(Rendezvous {
            begin,
            exposed: clocks.map(|clock| clock.read(begin)).collect(),
            has_lent_memory: contributions.iter().any(|each| each.operand.lent_memory().is_some()),
            done: AtomicUsize::new(0),
            ends: contributions.iter().map(|_| OnceLock::new()).collect(),
            contributions,
        });
        self.completed += 1;
        self.last = Some(Arc::clone(&rendezvous));
        Ok(rendezvous)
    }
}

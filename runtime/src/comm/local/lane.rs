//! Where the members of a group meet, one call after the other.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::backend::Moment;
use crate::comm::CommError;
use crate::comm::account::{Account, Begin, Inside};
use crate::comm::call::{Call, Difference};
use crate::comm::own_thread::OwnThread;
use crate::comm::timeline::Open;

use super::activity::Activity;
use super::device_queue::DeviceQueue;
use super::group::Group;
use super::monitor::{Guard, Monitor};
use super::operand::Operand;
use super::roster::Ending;
use super::sync::{AtomicUsize, Ordering};

/// One sequence of meetings. A group has one for synchronous and one for asynchronous calls.
pub struct Lane {
    monitor: Monitor<LaneState>,
}

struct LaneState {
    /// What each member brings to the next meeting, once it has arrived.
    posts: Vec<Option<Post>>,
    /// Meetings held so far, and the last of them. Everyone has picked that one up before the next is complete.
    held: u64,
    meeting: Option<Arc<Meeting>>,
    /// Of members that have left; without them no meeting takes place.
    endings: Vec<Option<Ending>>,
}

/// What a member brings.
pub struct Post {
    pub call: Arc<Call>,
    pub operand: Operand,
    /// In memory of a device: from when on it may be used.
    pub ready: Option<Moment>,
    /// In an asynchronous call: the clock of the rank's own thread.
    pub own_thread: Option<Arc<OwnThread>>,
}

/// A member on its way to a meeting, and through it.
pub struct Visitor<'a> {
    pub member: usize,
    /// What it sends.
    pub bytes: usize,
    pub account: &'a Arc<Account>,
    /// Where it queues its share, if that is in memory of a device.
    pub queue: Option<DeviceQueue>,
    /// In a synchronous call: the stay of the rank's own thread, which ends with the call.
    pub inside: Option<Inside<'a>>,
}

/// The posts of all members, which fit together.
pub struct Meeting {
    posts: Vec<Post>,
    begin: Instant,
    /// In an asynchronous call: what the clocks of the own threads showed then.
    in_communication: Vec<Duration>,
    /// Whether any operand is lent.
    lent: bool,
    /// Members that are done with the others' memory, or have queued what they do with it.
    done: AtomicUsize,
    /// When the queues of the members are done.
    ends: Box<[OnceLock<Moment>]>,
}

impl Lane {
    pub fn new(endings: Vec<Option<Ending>>, activity: &Arc<Activity>) -> Lane {
        let posts = endings.iter().map(|_| None).collect();
        let state = LaneState { posts, held: 0, meeting: None, endings };
        Lane { monitor: Monitor::new(state, activity) }
    }

    /// Waits until all members have posted, and compares their calls.
    pub fn meet<'a>(
        &'a self,
        group: &'a Group,
        post: Post,
        visitor: Visitor<'a>,
    ) -> Result<Attendance<'a>, CommError> {
        let member = visitor.member;
        let call = Arc::clone(&post.call);
        let lent = post.operand.lent().is_some();
        let mut state = self.monitor.lock();
        if let Some(halt) = state.halt(group) {
            drop(state);
            return Err(group.explain(halt, &call, member));
        }
        if state.posts[member].is_some() {
            return Err(CommError::Argument {
                call: call.to_string(),
                problem: "another thread of this rank is inside a call of the same group; issue the calls of \
                          a rank from one thread"
                    .into(),
            });
        }
        state.posts[member] = Some(post);
        if state.posts.iter().all(Option::is_some) {
            let verdict = state.convene(group);
            self.monitor.announce(state);
            if verdict.is_err() {
                group.wake();
            }
            return verdict.map(|meeting| Attendance::new(self, meeting, lent, visitor));
        }

        let held = state.held;
        let start = Instant::now();
        let outcome = self.monitor.wait(state, group.roster.timeout, |state, timed_out| {
            if state.held > held {
                return Some(Ok(Arc::clone(state.meeting.as_ref()?)));
            }
            let halt =
                state.halt(group).or_else(|| timed_out.then(|| Halt::Timeout(state.missing())))?;
            // From here on nobody can reach the memory that was to be lent.
            state.posts[member] = None;
            Some(Err(halt))
        });
        visitor.blocked_since(start);
        outcome
            .map(|meeting| Attendance::new(self, meeting, lent, visitor))
            .map_err(|halt| group.explain(halt, &call, member))
    }

    /// Lets everyone who waits look again.
    pub fn wake(&self) {
        self.monitor.announce(self.monitor.lock());
    }

    /// No meeting takes place without `member`.
    pub fn leave(&self, member: usize, ending: &Ending) {
        let mut state = self.monitor.lock();
        state.endings[member].get_or_insert_with(|| ending.clone());
        self.monitor.announce(state);
    }
}

/// Why a meeting does not take place.
#[derive(Clone)]
pub enum Halt {
    Failure(CommError),
    /// A member is gone.
    Left(usize, Ending),
    /// These members did not come in time.
    Timeout(Vec<usize>),
}

impl LaneState {
    fn halt(&self, group: &Group) -> Option<Halt> {
        let left =
            || self.endings.iter().enumerate().find_map(|(m, e)| Some(Halt::Left(m, e.clone()?)));
        group.failure().cloned().map(Halt::Failure).or_else(left)
    }

    fn missing(&self) -> Vec<usize> {
        (0..self.posts.len()).filter(|member| self.posts[*member].is_none()).collect()
    }

    /// All are here: either they fit together, or no meeting takes place any more.
    fn convene(&mut self, group: &Group) -> Result<Arc<Meeting>, CommError> {
        let posts: Vec<Post> = self.posts.iter_mut().filter_map(Option::take).collect();
        let calls: Vec<(usize, &Call)> = posts.iter().map(|post| &*post.call).enumerate().collect();
        if let Some(difference) = first_difference(&calls) {
            let error = group.mismatch(&calls, self.held + 1, difference);
            group.condemn(&error);
            return Err(error);
        }
        let lent = posts.iter().any(|post| post.operand.lent().is_some());
        let begin = Instant::now();
        let clocks = posts.iter().filter_map(|post| post.own_thread.as_ref());
        let in_communication = clocks.map(|clock| clock.read(begin)).collect();
        let ends = posts.iter().map(|_| OnceLock::new()).collect();
        let done = AtomicUsize::new(0);
        let meeting = Arc::new(Meeting { posts, begin, in_communication, lent, done, ends });
        self.held += 1;
        self.meeting = Some(Arc::clone(&meeting));
        Ok(meeting)
    }
}

fn first_difference(calls: &[(usize, &Call)]) -> Option<Difference> {
    let pairs = (0..calls.len()).flat_map(|a| (a + 1..calls.len()).map(move |b| (a, b)));
    pairs
        // Equality is transitive, so comparing with the first is enough; an all-to-all has to fit pairwise.
        .filter(|(a, _)| *a == 0 || calls[*a].1.is_pairwise())
        .filter_map(|(a, b)| Call::difference(calls[a], calls[b]))
        .min()
}

impl Visitor<'_> {
    /// The rank's own thread stood still since `start`, if it is the one that visits.
    fn blocked_since(&self, start: Instant) {
        if self.inside.is_some() {
            self.account.blocked_since(start);
        }
    }
}

/// A member's presence in a meeting. Dropping it parts: the member says that it is done with the others' memory
/// and, if it has lent its own, waits until all have said so, also while unwinding.
pub struct Attendance<'a> {
    lane: &'a Lane,
    meeting: Arc<Meeting>,
    lent: bool,
    parted: bool,
    visitor: Visitor<'a>,
    /// The call in the queue of the device, where that is traced.
    span: Option<Open>,
}

impl<'a> Attendance<'a> {
    fn new(lane: &'a Lane, meeting: Arc<Meeting>, lent: bool, visitor: Visitor<'a>) -> Self {
        Attendance { lane, meeting, lent, parted: false, visitor, span: None }
    }

    /// The queue of the member, if operands are in memory of a device.
    pub fn queue(&self) -> Option<&DeviceQueue> {
        self.visitor.queue.as_ref()
    }

    /// What is queued from now on is done after the operands of all members are ready.
    pub fn wait_for_operands(&mut self) {
        let Some(queue) = self.queue() else { return };
        queue.wait_for_own();
        let others = self.meeting.posts.iter().enumerate();
        let others = others.filter(|(member, _)| *member != self.visitor.member);
        others.filter_map(|(_, post)| post.ready.as_ref()).for_each(|ready| queue.wait_for(ready));
        self.span = self.visitor.account.open(queue.queue);
    }

    /// Parts. Of lent memory of a device, the queue of the member waits for what the others have queued.
    pub fn part_in_order(mut self) {
        let Some(queue) = self.visitor.queue.clone() else { return };
        if self.meeting.lent {
            self.meeting.ends[self.visitor.member].get_or_init(|| queue.mark());
        }
        self.part();
        if self.lent {
            let others = self.meeting.ends.iter().enumerate();
            let others = others.filter(|(member, _)| *member != self.visitor.member);
            // A member that failed has none; its device does nothing any more.
            others.filter_map(|(_, end)| end.get()).for_each(|end| queue.wait_for(end));
        }
        let Visitor { member, bytes, account, .. } = self.visitor;
        account.close(self.span.take(), self.call(member), bytes);
    }

    /// The operand of `member`.
    pub fn operand(&self, member: usize) -> &Operand {
        &self.meeting.posts[member].operand
    }

    pub fn operands(&self) -> impl Iterator<Item = &Operand> {
        self.meeting.posts.iter().map(|post| &post.operand)
    }

    /// The call of `member`.
    pub fn call(&self, member: usize) -> &Call {
        &self.meeting.posts[member].call
    }

    fn part(&mut self) {
        if std::mem::replace(&mut self.parted, true) || !self.meeting.lent {
            return;
        }
        let (done, all) = (&self.meeting.done, self.meeting.posts.len());
        // Release what this member has read and written; the waiting ones acquire it.
        if done.fetch_add(1, Ordering::AcqRel) + 1 == all {
            self.lane.monitor.announce(self.lane.monitor.lock());
        } else if self.lent && done.load(Ordering::Acquire) < all {
            let start = Instant::now();
            let guard: Guard<'_, LaneState> = self.lane.monitor.lock();
            // Without a limit: every other member is inside the engine and works.
            self.lane.monitor.wait(guard, Duration::MAX, |_, _| {
                (done.load(Ordering::Acquire) == all).then_some(())
            });
            self.visitor.blocked_since(start);
        }
    }
}

impl Drop for Attendance<'_> {
    fn drop(&mut self) {
        self.part();
        let (meeting, Visitor { member, bytes, account, .. }) = (&self.meeting, &self.visitor);
        let in_communication = meeting.in_communication.get(*member).copied().unwrap_or_default();
        let begin = Begin { at: meeting.begin, in_communication };
        account.transferred(self.call(*member), *bytes, begin);
    }
}

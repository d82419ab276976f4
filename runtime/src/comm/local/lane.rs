//! Where the members of a group meet, one call after the other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::comm::CommError;
use crate::comm::call::{Call, Difference};
use crate::comm::stats::Counters;

use super::activity::Activity;
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
}

/// The posts of all members, which fit together.
pub struct Meeting {
    posts: Vec<Post>,
    /// Whether any operand is lent.
    lent: bool,
    /// Members that are done with the others' memory.
    done: AtomicUsize,
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
        member: usize,
        post: Post,
        blocked: Option<&'a Counters>,
    ) -> Result<Attendance<'a>, CommError> {
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
        let attend = |meeting| Attendance { lane: self, meeting, lent, blocked };
        if state.posts.iter().all(Option::is_some) {
            let verdict = state.convene(group);
            self.monitor.announce(state);
            if verdict.is_err() {
                group.wake();
            }
            return verdict.map(attend);
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
        if let Some(blocked) = blocked {
            blocked.blocked_since(start);
        }
        outcome.map(attend).map_err(|halt| group.explain(halt, &call, member))
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
        let meeting = Arc::new(Meeting { posts, lent, done: AtomicUsize::new(0) });
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

/// A member's presence in a meeting. Dropping it parts: the member says that it is done with the others' memory
/// and, if it has lent its own, waits until all have said so, also while unwinding.
pub struct Attendance<'a> {
    lane: &'a Lane,
    meeting: Arc<Meeting>,
    lent: bool,
    blocked: Option<&'a Counters>,
}

impl Attendance<'_> {
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
}

impl Drop for Attendance<'_> {
    fn drop(&mut self) {
        if !self.meeting.lent {
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
            if let Some(blocked) = self.blocked {
                blocked.blocked_since(start);
            }
        }
    }
}

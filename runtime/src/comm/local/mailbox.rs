//! Messages between two members.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::backend::{Buffer, Category, MemoryMeter, View, ViewMut};
use crate::comm::CommError;
use crate::comm::call::Call;
use crate::comm::stats::Counters;

use super::activity::Activity;
use super::group::Group;
use super::lane::Halt;
use super::monitor::{Guard, Monitor};
use super::operand::Lent;
use super::roster::Ending;

/// The messages to one member.
pub struct Mailbox {
    monitor: Monitor<MailboxState>,
    /// Keeps the memory of messages for the next ones.
    meter: Arc<MemoryMeter>,
}

struct MailboxState {
    /// Messages not yet received, by sender.
    letters: Vec<VecDeque<Letter>>,
    /// The receiver, where it waits.
    reader: Option<Reader>,
    /// Messages taken so far, by sender.
    taken: Vec<u64>,
    endings: Vec<Option<Ending>>,
}

struct Letter {
    call: Arc<Call>,
    content: Buffer,
}

/// A receiver that waits: a sender that comes now copies straight into its memory.
struct Reader {
    from: usize,
    call: Arc<Call>,
    target: Lent,
    stage: Stage,
}

#[derive(PartialEq, Eq)]
enum Stage {
    Waiting,
    /// A sender is writing to the target, outside of the lock.
    Filling,
    Filled,
}

impl Mailbox {
    pub fn new(endings: Vec<Option<Ending>>, activity: &Arc<Activity>) -> Mailbox {
        let letters = endings.iter().map(|_| VecDeque::new()).collect();
        let taken = vec![0; endings.len()];
        let state = MailboxState { letters, reader: None, taken, endings };
        Mailbox { monitor: Monitor::new(state, activity), meter: MemoryMeter::new() }
    }

    /// Delivers a message of `from` to `to`, the owner of this mailbox.
    pub fn send(
        &self,
        group: &Group,
        (from, to): (usize, usize),
        call: &Arc<Call>,
        data: View<'_>,
    ) -> Result<(), CommError> {
        if self.hand_over(group, (from, to), call, data)?.is_none() {
            return Ok(());
        }
        // The receiver is not there yet. It may come while the data is copied aside, outside of the lock.
        let mut content = self.meter.alloc(data.dtype(), data.len(), Category::Communication);
        content.view_mut().bytes_mut().copy_from_slice(data.bytes());
        if let Some(mut state) = self.hand_over(group, (from, to), call, data)? {
            state.letters[from].push_back(Letter { call: Arc::clone(call), content });
        }
        Ok(())
    }

    /// Copies `data` into the memory of the receiver, if it waits for a message of `from`; otherwise gives the
    /// locked state.
    fn hand_over(
        &self,
        group: &Group,
        (from, to): (usize, usize),
        call: &Arc<Call>,
        data: View<'_>,
    ) -> Result<Option<Guard<'_, MailboxState>>, CommError> {
        let mut state = self.monitor.lock();
        if let Some(halt) = state.halt(group, [from, to]) {
            drop(state);
            return Err(group.explain(halt, call, from));
        }
        let waiting = state.reader.as_mut().filter(|r| r.from == from && r.stage == Stage::Waiting);
        let Some(reader) = waiting else { return Ok(Some(state)) };
        if let Some(difference) = Call::message_difference(call, &reader.call) {
            let expected = Arc::clone(&reader.call);
            let number = state.taken[from] + 1;
            drop(state);
            let error = group.mismatch(&[(from, call), (to, &expected)], number, difference);
            group.fail(&error);
            return Err(error);
        }
        reader.stage = Stage::Filling;
        let target = reader.target;
        drop(state);
        // SAFETY: the receiver stays in `recv` until the stage is `Filled`, does not touch the target meanwhile,
        // and no other sender finds the stage `Waiting`.
        unsafe { target.fill(data) };
        let mut state = self.monitor.lock();
        if let Some(reader) = &mut state.reader {
            reader.stage = Stage::Filled;
        }
        self.monitor.announce(state);
        Ok(None)
    }

    /// Takes the next message of `from` for `to`, the owner of this mailbox.
    pub fn recv(
        &self,
        group: &Group,
        (from, to): (usize, usize),
        call: &Arc<Call>,
        mut data: ViewMut<'_>,
        blocked: &Counters,
    ) -> Result<(), CommError> {
        let mut state = self.monitor.lock();
        if state.reader.is_some() {
            return Err(CommError::Argument {
                call: call.to_string(),
                problem: "another thread of this rank is inside a recv of the same group; issue the calls of \
                          a rank from one thread"
                    .into(),
            });
        }
        // A message that was sent counts, even if its sender has left since.
        if group.failure().is_none()
            && let Some(letter) = state.letters[from].pop_front()
        {
            state.taken[from] += 1;
            let number = state.taken[from];
            drop(state);
            if let Some(difference) = Call::message_difference(&letter.call, call) {
                let calls: [(usize, &Call); 2] = [(from, &letter.call), (to, call)];
                let error = group.mismatch(&calls, number, difference);
                group.fail(&error);
                return Err(error);
            }
            data.bytes_mut().copy_from_slice(letter.content.view().bytes());
            return Ok(());
        }
        let target = Lent::target(&mut data);
        state.reader = Some(Reader { from, call: Arc::clone(call), target, stage: Stage::Waiting });
        let start = Instant::now();
        let outcome = self.monitor.wait(state, group.roster.timeout, |state, timed_out| {
            let halt = match state.reader.as_ref().map(|reader| &reader.stage) {
                Some(Stage::Filled) => None,
                // The sender is copying, and finishes in bounded time.
                Some(Stage::Filling) => return None,
                _ => {
                    let timeout = || timed_out.then(|| Halt::Timeout(vec![from]));
                    Some(state.halt(group, [to, from]).or_else(timeout)?)
                }
            };
            // From here on nobody can reach the target.
            state.reader = None;
            state.taken[from] += 1;
            Some(halt)
        });
        blocked.blocked_since(start);
        outcome.map_or(Ok(()), |halt| Err(group.explain(halt, call, to)))
    }

    /// Lets everyone who waits look again.
    pub fn wake(&self) {
        self.monitor.announce(self.monitor.lock());
    }

    /// `member` neither sends nor receives any more.
    pub fn leave(&self, member: usize, ending: &Ending) {
        let mut state = self.monitor.lock();
        state.endings[member].get_or_insert_with(|| ending.clone());
        self.monitor.announce(state);
    }
}

impl MailboxState {
    fn halt(&self, group: &Group, members: [usize; 2]) -> Option<Halt> {
        let left =
            || members.into_iter().find_map(|m| Some(Halt::Left(m, self.endings[m].clone()?)));
        group.failure().cloned().map(Halt::Failure).or_else(left)
    }
}

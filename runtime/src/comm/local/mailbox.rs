//! Messages to one member.
//!
//! Whatever a message and its receiver do is decided when they are issued, under the lock: a message goes to the first
//! receiver that waits for one of its sender, or waits itself. So the order between two members is that of issue, although
//! the data may be copied later and by another thread.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::backend::{Buffer, Category, Device, MemoryMeter, Moment, ViewMut};
use crate::comm::CommError;
use crate::comm::account::Account;
use crate::comm::busy::Busy;
use crate::comm::call::Call;

use super::activity::Activity;
use super::device_queue::DeviceQueue;
use super::group::Group;
use super::lane::Halt;
use super::message::Message;
use super::monitor::{Guard, Monitor};
use super::operand::Lent;
use super::reader::{Delivery, Reader, Received, Target};
use super::roster::Ending;

/// The messages to one member.
pub struct Mailbox {
    /// The member.
    owner: usize,
    monitor: Monitor<MailboxState>,
    /// Keeps the memory of messages for the next ones.
    meter: Arc<MemoryMeter>,
    /// The same for messages in memory of a device, by sender.
    device_meters: Box<[OnceLock<Arc<MemoryMeter>>]>,
}

struct MailboxState {
    /// What each sender has to do with this member.
    senders: Vec<Sender>,
    /// Receivers in `recv` whose memory is filled.
    filled: Vec<Filled>,
}

/// A receiver whose message has come.
struct Filled {
    ticket: Ticket,
    /// Since when its memory was being filled.
    begin: Instant,
    /// When that is done, if it is queued.
    end: Option<Moment>,
}

/// The sender of a message, and its number among the receives from that one, from 1.
type Ticket = (usize, u64);

#[derive(Default)]
struct Sender {
    /// Messages not yet received, and receivers that wait for one. One of the two is empty.
    letters: VecDeque<Letter>,
    readers: VecDeque<Reader>,
    /// Receives issued so far.
    receives: u64,
    ending: Option<Ending>,
}

/// A message that nobody waited for.
pub struct Letter {
    call: Arc<Call>,
    content: Content,
    /// In memory of a device: from when on it may be read.
    ready: Option<Moment>,
}

enum Content {
    /// A copy of what was sent.
    Copied(Buffer),
    /// What was sent itself, which its sender does not change any more.
    Shared(Arc<Buffer>),
}

impl Letter {
    /// The message, to be copied by the receiver, whose queue this is.
    pub fn message(&self, queue: Option<DeviceQueue>) -> Message<'_> {
        Message { data: self.buffer().view(), queue, ready: self.ready.clone() }
    }

    /// Drops the memory, which is being read until `end`.
    pub fn drop_after(self, end: Option<Moment>) {
        let device = self.buffer().meter().device().cloned();
        drop(Busy::until(self.content, device.as_ref(), end));
    }

    fn buffer(&self) -> &Buffer {
        match &self.content {
            Content::Copied(buffer) => buffer,
            Content::Shared(buffer) => buffer,
        }
    }
}

impl Mailbox {
    pub fn new(owner: usize, endings: Vec<Option<Ending>>, activity: &Arc<Activity>) -> Mailbox {
        let sender = |ending| Sender { ending, ..Sender::default() };
        let senders: Vec<_> = endings.into_iter().map(sender).collect();
        let device_meters = senders.iter().map(|_| OnceLock::new()).collect();
        let state = MailboxState { senders, filled: Vec::new() };
        let monitor = Monitor::new(state, activity);
        Mailbox { owner, monitor, meter: MemoryMeter::new(), device_meters }
    }

    fn meter(&self, from: usize, device: Option<&Arc<dyn Device>>) -> &Arc<MemoryMeter> {
        let on_device = |device| MemoryMeter::on(Some(Arc::clone(device)), usize::MAX);
        device.map_or(&self.meter, |device| {
            self.device_meters[from].get_or_init(|| on_device(device))
        })
    }

    /// Delivers a message of `from`, copying it.
    pub fn send(
        &self,
        group: &Group,
        from: usize,
        call: &Arc<Call>,
        message: &Message<'_>,
    ) -> Result<(), CommError> {
        match self.reader(group, from, call)? {
            Ok(reader) => {
                self.fill(from, reader, message);
                return Ok(());
            }
            Err(state) => drop(state),
        }
        // The receiver is not there yet. It may come while the data is copied aside, outside of the lock.
        let data = message.data;
        let meter = self.meter(from, data.device());
        let mut copy = meter.alloc(data.dtype(), data.len(), Category::Communication);
        // SAFETY: the copy is exclusive, and in the same kind of memory. What its memory held before was used by this
        // queue, or by a receiver for whom this queue waits since the memory was given back.
        let ready = unsafe { message.copy_to(&Lent::target(&mut copy.view_mut()), None) };
        match self.reader(group, from, call)? {
            Ok(reader) => {
                self.fill(from, reader, message);
            }
            Err(mut state) => state.put(from, call, Content::Copied(copy), ready),
        }
        Ok(())
    }

    /// Delivers a message of `from` without copying it: gives the receiver that is to be filled with it, if one waits.
    pub fn start_send(
        &self,
        group: &Group,
        from: usize,
        call: &Arc<Call>,
        data: &Arc<Buffer>,
        ready: Option<Moment>,
    ) -> Result<Option<Reader>, CommError> {
        Ok(match self.reader(group, from, call)? {
            Ok(reader) => Some(reader),
            Err(mut state) => {
                state.put(from, call, Content::Shared(Arc::clone(data)), ready);
                None
            }
        })
    }

    /// Takes the receiver that waits for a message of `from`; otherwise gives the locked state.
    fn reader(
        &self,
        group: &Group,
        from: usize,
        call: &Arc<Call>,
    ) -> Result<Result<Reader, Guard<'_, MailboxState>>, CommError> {
        let mut state = self.monitor.lock();
        if let Some(halt) = state.halt(group, from, self.owner) {
            drop(state);
            return Err(group.explain(halt, call, from));
        }
        let Some(reader) = state.senders[from].readers.front() else { return Ok(Err(state)) };
        if let Some(difference) = Call::message_difference(call, &reader.call) {
            let (expected, number) = (Arc::clone(&reader.call), reader.number);
            drop(state);
            let calls: [(usize, &Call); 2] = [(from, call), (self.owner, &expected)];
            let error = group.mismatch(&calls, number, difference);
            group.fail(&error);
            return Err(error);
        }
        match state.senders[from].readers.pop_front() {
            Some(reader) => Ok(Ok(reader)),
            None => Ok(Err(state)),
        }
    }

    /// Gives a message of `from` to a receiver that waited for it. Gives when it has been read, if that is queued.
    pub fn fill(&self, from: usize, reader: Reader, message: &Message<'_>) -> Option<Moment> {
        let ready = reader.ready.as_ref();
        match reader.target {
            Target::Owned(mut delivery) => {
                let end = delivery.copy(&reader.call, message, ready, false);
                delivery.complete(end.clone());
                end
            }
            Target::Lent(target) => {
                let begin = Instant::now();
                // SAFETY: the receiver stays in `recv`, and does not touch the target, until its ticket is among those
                // that are filled; and it was taken out of the readers, so that no other sender knows it.
                let end = unsafe { message.copy_to(&target, ready) };
                let mut state = self.monitor.lock();
                let ticket = (from, reader.number);
                state.filled.push(Filled { ticket, begin, end: end.clone() });
                self.monitor.announce(state);
                end
            }
        }
    }

    /// Takes the next message of `from`. Gives the moment from which on the message was there.
    pub fn recv(
        &self,
        group: &Group,
        from: usize,
        call: &Arc<Call>,
        mut data: ViewMut<'_>,
        queue: Option<DeviceQueue>,
        account: &Account,
    ) -> Result<Instant, CommError> {
        let start = Instant::now();
        let mut state = self.monitor.lock();
        let (number, letter) = state.next(group, from);
        if let Some(letter) = letter {
            drop(state);
            self.check(group, (from, number), &letter, call)?;
            // SAFETY: `data` is exclusive, and in the same kind of memory, as the calls were compared.
            let end = unsafe { letter.message(queue).copy_to(&Lent::target(&mut data), None) };
            letter.drop_after(end);
            return Ok(start);
        }
        let target = Target::Lent(Lent::target(&mut data));
        let ready = queue.as_ref().map(|queue| queue.ready.clone());
        let reader = Reader { number, call: Arc::clone(call), target, ready };
        state.senders[from].readers.push_back(reader);
        let outcome = self.monitor.wait(state, group.roster.timeout, |state, timed_out| {
            let is_own = |filled: &Filled| filled.ticket == (from, number);
            if let Some(idx) = state.filled.iter().position(is_own) {
                return Some(Ok(state.filled.swap_remove(idx)));
            }
            // A sender that has taken the reader is copying, and finishes in bounded time.
            let idx = state.position((from, number))?;
            let timeout = || timed_out.then(|| Halt::Timeout(vec![from]));
            let halt = state.halt(group, from, self.owner).or_else(timeout)?;
            // From here on nobody can reach the target.
            state.senders[from].readers.remove(idx);
            Some(Err(halt))
        });
        account.blocked_since(start);
        let filled = outcome.map_err(|halt| group.explain(halt, call, self.owner))?;
        if let Some((queue, end)) = queue.zip(filled.end) {
            queue.wait_for(&end);
        }
        Ok(filled.begin)
    }

    /// Takes the next message of `from`, or leaves `delivery` for it.
    pub fn start_recv(
        &self,
        group: &Group,
        from: usize,
        call: &Arc<Call>,
        delivery: Delivery,
        ready: Option<Moment>,
    ) -> Received {
        let mut state = self.monitor.lock();
        let (number, letter) = state.next(group, from);
        if let Some(letter) = letter {
            drop(state);
            return match self.check(group, (from, number), &letter, call) {
                Ok(()) => Received::Letter(letter, delivery),
                Err(error) => delivery.refuse(error),
            };
        }
        if let Some(halt) = state.halt(group, from, self.owner) {
            drop(state);
            return delivery.refuse(group.explain(halt, call, self.owner));
        }
        let reader =
            Reader { number, call: Arc::clone(call), target: Target::Owned(delivery), ready };
        state.senders[from].readers.push_back(reader);
        Received::Waits(number)
    }

    /// Gives up on a receiver that was left, unless its message has come.
    pub fn expire(&self, group: &Group, ticket: Ticket) {
        let mut state = self.monitor.lock();
        let idx = state.position(ticket);
        let reader = idx.and_then(|idx| state.senders[ticket.0].readers.remove(idx));
        drop(state);
        if let Some(reader) = reader {
            let halt = Halt::Timeout(vec![ticket.0]);
            reader.give_up(|call| group.explain(halt, call, self.owner));
        }
    }

    /// Lets everyone who waits look again, and looks for those who do not wait in person.
    pub fn wake(&self, group: &Group) {
        let mut state = self.monitor.lock();
        let mut halted = Vec::new();
        for from in 0..state.senders.len() {
            if let Some(halt) = state.halt(group, from, self.owner) {
                let readers = std::mem::take(&mut state.senders[from].readers);
                let (left, waiting): (VecDeque<_>, _) =
                    readers.into_iter().partition(Reader::was_left);
                state.senders[from].readers = waiting;
                halted.push((halt, left));
            }
        }
        self.monitor.announce(state);
        for (halt, readers) in halted {
            for reader in readers {
                reader.give_up(|call| group.explain(halt.clone(), call, self.owner));
            }
        }
    }

    /// `member` neither sends nor receives any more.
    pub fn leave(&self, group: &Group, member: usize, ending: &Ending) {
        self.monitor.lock().senders[member].ending.get_or_insert_with(|| ending.clone());
        self.wake(group);
    }

    fn check(
        &self,
        group: &Group,
        (from, number): Ticket,
        letter: &Letter,
        call: &Arc<Call>,
    ) -> Result<(), CommError> {
        let Some(difference) = Call::message_difference(&letter.call, call) else { return Ok(()) };
        let calls: [(usize, &Call); 2] = [(from, &letter.call), (self.owner, call)];
        let error = group.mismatch(&calls, number, difference);
        group.fail(&error);
        Err(error)
    }
}

impl MailboxState {
    /// The number of the next receive from `from`, and its message, if it is there. One that was sent counts, even if
    /// its sender has left since.
    fn next(&mut self, group: &Group, from: usize) -> (u64, Option<Letter>) {
        let sender = &mut self.senders[from];
        sender.receives += 1;
        let letter = if group.failure().is_none() { sender.letters.pop_front() } else { None };
        (sender.receives, letter)
    }

    fn put(&mut self, from: usize, call: &Arc<Call>, content: Content, ready: Option<Moment>) {
        let letter = Letter { call: Arc::clone(call), content, ready };
        self.senders[from].letters.push_back(letter);
    }

    /// Where a reader stands that still waits.
    fn position(&self, (from, number): Ticket) -> Option<usize> {
        self.senders[from].readers.iter().position(|reader| reader.number == number)
    }

    fn halt(&self, group: &Group, from: usize, owner: usize) -> Option<Halt> {
        let left = |member: usize| Some(Halt::Left(member, self.senders[member].ending.clone()?));
        let left = || left(owner).or_else(|| left(from));
        group.failure().cloned().map(Halt::Failure).or_else(left)
    }
}

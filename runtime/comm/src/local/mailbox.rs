//! The mailbox of one member.
//!
//! The match of a message with its receiver is decided under the lock when they are issued: a message goes to the first
//! receiver that waits for one of its sender, or is stored. So the order between two members is the order of issue,
//! although the data may be copied later and by another thread.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::CommError;
use crate::accounting::Accounting;
use crate::call::{Call, CallDifference};
use crate::rank_table::ExitCause;
use crate::sync::{DeadlockDetector, Guard, Monitor};
use meshwright_backend::{Buffer, CachingAllocator, Category, Device, DeviceEvent, ViewMut};

use super::device_stream::DeviceStream;
use super::group_status::{GroupStatus, Interruption};
use super::message::MessageData;
use super::operand::LentMemory;
use super::receiver::{Delivery, ReceiveTarget, Receiver};
use super::stored_message::{Content, StoredMessage};

/// The messages to one member.
pub struct Mailbox {
    /// Group rank of the receiving member.
    owner: usize,
    monitor: Monitor<MailboxState>,
    /// Pool for the memory of stored messages.
    allocator: Arc<CachingAllocator>,
    /// The same for messages in device memory, by sender.
    device_meters: Box<[OnceLock<Arc<CachingAllocator>>]>,
}

struct MailboxState {
    senders: Vec<SenderState>,
    /// Receives in `recv` whose memory is filled.
    filled: Vec<Filled>,
}

/// A receive whose message was delivered.
struct Filled {
    ticket: Ticket,
    /// Start of the copy.
    begin: Instant,
    /// Event at the end of the copy if it was submitted to a stream.
    end: Option<DeviceEvent>,
}

/// A receive: the group rank of its sender, and its number among the receives from that sender, from 1.
type Ticket = (usize, u64);

/// The messages and receives between one sender and the owner.
#[derive(Default)]
struct SenderState {
    /// Stored messages, and waiting receivers. One of the two is empty.
    messages: VecDeque<StoredMessage>,
    receivers: VecDeque<Receiver>,
    /// Number of receives issued.
    receives: u64,
    exit: Option<ExitCause>,
}

/// The state of an asynchronous receive that was issued.
pub enum Received {
    /// The message has arrived, to be copied.
    Stored(StoredMessage, Delivery),
    /// It waits for its message, under this number.
    Waits(u64),
    /// The promise has reported an error.
    Failed,
}

impl Mailbox {
    /// Creates an empty mailbox; `exits` has one entry per member.
    pub fn new(
        owner: usize,
        exits: Vec<Option<ExitCause>>,
        deadlock: &Arc<DeadlockDetector>,
    ) -> Mailbox {
        let sender = |exit| SenderState { exit, ..SenderState::default() };
        let senders: Vec<_> = exits.into_iter().map(sender).collect();
        let device_meters = senders.iter().map(|_| OnceLock::new()).collect();
        let state = MailboxState { senders, filled: Vec::new() };
        let monitor = Monitor::new(state, deadlock);
        Mailbox { owner, monitor, allocator: CachingAllocator::new(), device_meters }
    }

    /// The memory pool for stored messages of `from`.
    fn allocator(&self, from: usize, device: Option<&Arc<dyn Device>>) -> &Arc<CachingAllocator> {
        let on_device = |device| CachingAllocator::on(Some(Arc::clone(device)), usize::MAX);
        device.map_or(&self.allocator, |device| {
            self.device_meters[from].get_or_init(|| on_device(device))
        })
    }

    /// Delivers a message of `from` to a waiting receiver, or stores a copy.
    pub fn send(
        &self,
        group: &GroupStatus,
        from: usize,
        call: &Arc<Call>,
        message: &MessageData<'_>,
    ) -> Result<(), CommError> {
        match self.match_receiver(group, from, call)? {
            Ok(receiver) => {
                self.deliver(from, receiver, message);
                return Ok(());
            }
            Err(state) => drop(state),
        }
        // No receiver waits yet. It may arrive while the data is copied, outside of the lock.
        let data = message.data;
        let allocator = self.allocator(from, data.device());
        let mut copy = allocator.alloc(data.dtype(), data.len(), Category::Communication);
        let target = LentMemory::target(&mut copy.view_mut());
        // SAFETY: the copy is exclusive, and in the same kind of memory. The previous contents of its memory were used
        // by this stream, or by a receiver that this stream has waited for since the memory went back to the pool.
        let ready = unsafe { message.copy_to(&target, None) };
        match self.match_receiver(group, from, call)? {
            Ok(receiver) => drop(self.deliver(from, receiver, message)),
            Err(mut state) => state.store_message(from, call, Content::Copied(copy), ready),
        }
        Ok(())
    }

    /// Issues a message of `from` without copying it. Returns the receiver to deliver it to, if one waits, and stores
    /// the message otherwise.
    pub fn start_send(
        &self,
        group: &GroupStatus,
        from: usize,
        call: &Arc<Call>,
        data: &Arc<Buffer>,
        ready: Option<DeviceEvent>,
    ) -> Result<Option<Receiver>, CommError> {
        Ok(match self.match_receiver(group, from, call)? {
            Ok(receiver) => Some(receiver),
            Err(mut state) => {
                state.store_message(from, call, Content::Shared(Arc::clone(data)), ready);
                None
            }
        })
    }

    /// Removes the receiver that waits for a message of `from`, or returns the locked state.
    fn match_receiver(
        &self,
        group: &GroupStatus,
        from: usize,
        call: &Arc<Call>,
    ) -> Result<Result<Receiver, Guard<'_, MailboxState>>, CommError> {
        let mut state = self.monitor.lock();
        if let Some(interruption) = state.interruption(group, from, self.owner) {
            drop(state);
            return Err(group.interrupted(interruption, call, from));
        }
        let Some(receiver) = state.senders[from].receivers.front() else { return Ok(Err(state)) };
        if let Some(difference) = Call::message_difference(call, &receiver.call) {
            let (expected, number) = (Arc::clone(&receiver.call), receiver.number);
            drop(state);
            return Err(self.mismatch(group, (from, number), (call, &expected), difference));
        }
        match state.senders[from].receivers.pop_front() {
            Some(receiver) => Ok(Ok(receiver)),
            None => Ok(Err(state)),
        }
    }

    /// Copies a message of `from` to the receiver that waited for it. Returns the event at the end of the copy if it
    /// was submitted to a stream.
    pub fn deliver(
        &self,
        from: usize,
        receiver: Receiver,
        message: &MessageData<'_>,
    ) -> Option<DeviceEvent> {
        let ready = receiver.ready.as_ref();
        match receiver.target {
            ReceiveTarget::Owned(mut delivery) => {
                let end = delivery.copy_message(&receiver.call, message, ready, false);
                delivery.complete(end.clone());
                end
            }
            ReceiveTarget::Lent(target) => {
                let begin = Instant::now();
                // SAFETY: the receiver stays in `recv`, and does not touch the target, until its ticket is filled; and
                // it was removed from the receivers, so that no other message is copied to it.
                let end = unsafe { message.copy_to(&target, ready) };
                let mut state = self.monitor.lock();
                let ticket = (from, receiver.number);
                state.filled.push(Filled { ticket, begin, end: end.clone() });
                self.monitor.notify_all(state);
                end
            }
        }
    }

    /// Waits for the next message of `from`. Returns the time at which its transfer began.
    pub fn recv(
        &self,
        group: &GroupStatus,
        from: usize,
        call: &Arc<Call>,
        mut data: ViewMut<'_>,
        stream: Option<DeviceStream>,
        accounting: &Accounting,
    ) -> Result<Instant, CommError> {
        let start = Instant::now();
        let mut state = self.monitor.lock();
        let (number, stored) = state.next_message(group, from);
        let target = LentMemory::target(&mut data);
        if let Some(stored) = stored {
            drop(state);
            self.check_match(group, (from, number), &stored.call, call)?;
            // SAFETY: `data` is exclusive, and in the same kind of memory, as the calls were compared.
            let end = unsafe { stored.message(stream).copy_to(&target, None) };
            stored.drop_after(end);
            return Ok(start);
        }
        let ready = stream.as_ref().map(|stream| stream.ready.clone());
        let (call_of_receiver, target) = (Arc::clone(call), ReceiveTarget::Lent(target));
        let receiver = Receiver { number, call: call_of_receiver, target, ready };
        state.senders[from].receivers.push_back(receiver);
        let outcome = self.monitor.wait(state, group.time_limit(self.owner), |state, timed_out| {
            let is_own = |filled: &Filled| filled.ticket == (from, number);
            if let Some(idx) = state.filled.iter().position(is_own) {
                return Some(Ok(state.filled.swap_remove(idx)));
            }
            // A sender that has removed the receiver is copying, and finishes in bounded time.
            let idx = state.receiver_position((from, number))?;
            let timeout = || timed_out.then(|| Interruption::TimedOut(vec![from]));
            let interruption = state.interruption(group, from, self.owner).or_else(timeout)?;
            // From here on no sender can reach the target.
            state.senders[from].receivers.remove(idx);
            Some(Err(interruption))
        });
        accounting.add_blocked_since(start);
        let filled =
            outcome.map_err(|interruption| group.interrupted(interruption, call, self.owner))?;
        if let Some((stream, end)) = stream.zip(filled.end) {
            stream.wait_for(&end);
        }
        Ok(filled.begin)
    }

    /// Issues an asynchronous receive of the next message of `from` into `delivery`.
    pub fn start_recv(
        &self,
        group: &GroupStatus,
        from: usize,
        call: &Arc<Call>,
        delivery: Delivery,
        ready: Option<DeviceEvent>,
    ) -> Received {
        let mut state = self.monitor.lock();
        let (number, stored) = state.next_message(group, from);
        if let Some(stored) = stored {
            drop(state);
            if let Err(error) = self.check_match(group, (from, number), &stored.call, call) {
                delivery.promise.fulfill(Err(error));
                return Received::Failed;
            }
            return Received::Stored(stored, delivery);
        }
        if let Some(interruption) = state.interruption(group, from, self.owner) {
            drop(state);
            let error = group.interrupted(interruption, call, self.owner);
            delivery.promise.fulfill(Err(error));
            return Received::Failed;
        }
        let target = ReceiveTarget::Owned(delivery);
        let receiver = Receiver { number, call: Arc::clone(call), target, ready };
        state.senders[from].receivers.push_back(receiver);
        Received::Waits(number)
    }

    /// Fails an asynchronous receive with a timeout, unless its message was delivered.
    pub fn expire(&self, group: &GroupStatus, ticket: Ticket) {
        let mut state = self.monitor.lock();
        let idx = state.receiver_position(ticket);
        let receiver = idx.and_then(|idx| state.senders[ticket.0].receivers.remove(idx));
        drop(state);
        if let Some(receiver) = receiver {
            let timeout = Interruption::TimedOut(vec![ticket.0]);
            receiver.fail(|call| group.interrupted(timeout, call, self.owner));
        }
    }

    /// Notifies all waiting threads, and fails the asynchronous receives that are interrupted.
    pub fn notify_all(&self, group: &GroupStatus) {
        let mut state = self.monitor.lock();
        let mut interrupted = Vec::new();
        for from in 0..state.senders.len() {
            if let Some(interruption) = state.interruption(group, from, self.owner) {
                let receivers = std::mem::take(&mut state.senders[from].receivers);
                let (asynchronous, blocking): (VecDeque<_>, _) =
                    receivers.into_iter().partition(Receiver::is_asynchronous);
                state.senders[from].receivers = blocking;
                interrupted.push((interruption, asynchronous));
            }
        }
        self.monitor.notify_all(state);
        for (interruption, receivers) in interrupted {
            for receiver in receivers {
                receiver.fail(|call| group.interrupted(interruption.clone(), call, self.owner));
            }
        }
    }

    /// Ends the messages of `member`, sent and received.
    pub fn leave(&self, group: &GroupStatus, member: usize, cause: &ExitCause) {
        self.monitor.lock().senders[member].exit.get_or_insert_with(|| cause.clone());
        self.notify_all(group);
    }

    /// Fails the group if a message does not match its receive.
    fn check_match(
        &self,
        group: &GroupStatus,
        ticket: Ticket,
        sent: &Call,
        expected: &Call,
    ) -> Result<(), CommError> {
        match Call::message_difference(sent, expected) {
            Some(difference) => Err(self.mismatch(group, ticket, (sent, expected), difference)),
            None => Ok(()),
        }
    }

    /// Fails the group because a message does not match its receive.
    fn mismatch(
        &self,
        group: &GroupStatus,
        (from, number): Ticket,
        (sent, expected): (&Call, &Call),
        difference: CallDifference,
    ) -> CommError {
        group.mismatch(&[(from, sent), (self.owner, expected)], number, difference)
    }
}

impl MailboxState {
    /// Returns the number of the next receive from `from`, and its message if it is stored, even if its sender has left
    /// since.
    fn next_message(&mut self, group: &GroupStatus, from: usize) -> (u64, Option<StoredMessage>) {
        let sender = &mut self.senders[from];
        sender.receives += 1;
        let stored = if group.failure().is_none() { sender.messages.pop_front() } else { None };
        (sender.receives, stored)
    }

    fn store_message(
        &mut self,
        from: usize,
        call: &Arc<Call>,
        content: Content,
        ready: Option<DeviceEvent>,
    ) {
        let message = StoredMessage { call: Arc::clone(call), content, ready };
        self.senders[from].messages.push_back(message);
    }

    /// Returns the position of a receiver that still waits.
    fn receiver_position(&self, (from, number): Ticket) -> Option<usize> {
        self.senders[from].receivers.iter().position(|receiver| receiver.number == number)
    }

    fn interruption(&self, group: &GroupStatus, from: usize, owner: usize) -> Option<Interruption> {
        let left =
            |member: usize| Some(Interruption::Left(member, self.senders[member].exit.clone()?));
        let left = || left(owner).or_else(|| left(from));
        group.failure().cloned().map(Interruption::Failed).or_else(left)
    }
}

//! Messages, as a seat issues them.

use std::sync::Arc;

use crate::backend::{Buffer, View, ViewMut};
use crate::comm::account::Begin;
use crate::comm::busy::Busy;
use crate::comm::call::{Call, Op};
use crate::comm::pending::{Overdue, Promise};
use crate::comm::{CommError, Pending, Site};

use super::message::Message;
use super::operand::COPY_LIMIT;
use super::progress::Job;
use super::reader::{Delivery, Received};
use super::seat::{Mode, Outcome, Seat};

impl Seat {
    pub fn send(&self, site: &Site, to: usize, data: View<'_>) -> Outcome {
        let mode = &Mode::Synchronous;
        let call = self.send_call(mode, site, to, data)?;
        let inside = self.account.enter(call.op.name(), site);
        let message = Message::own(data, self.queue(mode, data));
        self.group.mailboxes[to].send(&self.group, self.member, &call, &message)?;
        self.account.transferred(&call, data.byte_len(), Begin::at(inside.start));
        Ok(())
    }

    pub fn recv(&self, site: &Site, from: usize, data: ViewMut<'_>) -> Outcome {
        let mode = &Mode::Synchronous;
        let call = self.recv_call(mode, site, from, data.as_view())?;
        let _inside = self.account.enter(call.op.name(), site);
        let (mailbox, queue) =
            (&self.group.mailboxes[self.member], self.queue(mode, data.as_view()));
        let begin = mailbox.recv(&self.group, from, &call, data, queue, &self.account)?;
        self.account.transferred(&call, 0, Begin::at(begin));
        Ok(())
    }

    /// Issues a message. What is left to do, if anything, does not wait for anyone.
    pub fn start_send(
        &self,
        site: &Site,
        to: usize,
        data: Arc<Buffer>,
    ) -> (Pending<()>, Option<Job>) {
        let (promise, pending) = self.promise(site);
        (pending, self.issue_send(site, to, data, promise))
    }

    fn issue_send(
        &self,
        site: &Site,
        to: usize,
        data: Arc<Buffer>,
        promise: Promise<()>,
    ) -> Option<Job> {
        let (view, mode) = (data.view(), &Mode::Asynchronous(None));
        let bytes = view.byte_len();
        let queue = self.queue(mode, view);
        let issue = || {
            let call = self.send_call(mode, site, to, view)?;
            let (mailbox, ready) = (&self.group.mailboxes[to], queue.as_ref().map(|q| &q.ready));
            let reader =
                mailbox.start_send(&self.group, self.member, &call, &data, ready.cloned())?;
            Ok((reader, call))
        };
        let (reader, call) = match issue() {
            Ok(issued) => issued,
            Err(error) => {
                promise.keep(Err(error));
                return None;
            }
        };
        let Some(reader) = reader else {
            self.account.message_transferred(&call, bytes, self.account.begin(), false);
            promise.keep(Ok(Busy::idle(())));
            return None;
        };
        let (sent, is_queued) = (Arc::clone(&call), queue.is_some());
        self.now_or_later(&call, bytes, is_queued, move |seat, on_its_thread| {
            let begin = seat.account.begin();
            let message = Message::own(data.view(), queue);
            let end = seat.group.mailboxes[to].fill(seat.member, reader, &message);
            seat.account.message_transferred(&sent, bytes, begin, on_its_thread);
            let device = data.meter().device().cloned();
            promise.keep(Ok(Busy::until((), device.as_ref(), end).holding(Some(data))));
        })
    }

    /// Issues the receipt of a message. What is left to do, if anything, does not wait for anyone.
    pub fn start_recv(&self, site: &Site, from: usize, data: Buffer) -> (Pending, Option<Job>) {
        let (promise, mut pending) = self.promise(site);
        let (mode, bytes) = (&Mode::Asynchronous(None), data.view().byte_len());
        let call = match self.recv_call(mode, site, from, data.view()) {
            Ok(call) => call,
            Err(error) => {
                promise.keep(Err(error));
                return (pending, None);
            }
        };
        let queue = self.queue(mode, data.view());
        let ready = queue.as_ref().map(|queue| queue.ready.clone());
        let delivery = Delivery { data, promise, account: Arc::clone(&self.account) };
        let mailbox = &self.group.mailboxes[self.member];
        match mailbox.start_recv(&self.group, from, &call, delivery, ready.clone()) {
            Received::Letter(letter, mut delivery) => {
                let (expected, is_queued) = (Arc::clone(&call), queue.is_some());
                let job = self.now_or_later(&call, bytes, is_queued, move |_, on_its_thread| {
                    let message = letter.message(queue);
                    let end = delivery.copy(&expected, &message, ready.as_ref(), on_its_thread);
                    drop(message);
                    // The sender may look for its buffer once the receiver has the message.
                    letter.drop_after(end.clone());
                    delivery.complete(end);
                });
                (pending, job)
            }
            Received::Waits(number) => {
                let (group, owner) = (Arc::clone(&self.group), self.member);
                let limit = group.roster.timeout;
                let give_up = move || group.mailboxes[owner].expire(&group, (from, number));
                pending.overdue = Some(Overdue { limit, give_up: Box::new(give_up) });
                (pending, None)
            }
            Received::Refused => (pending, None),
        }
    }

    /// Copies a small message at once, or queues its copy, which takes less time than to tell another thread; else gives what
    /// is to be done.
    fn now_or_later(
        &self,
        call: &Call,
        bytes: usize,
        is_queued: bool,
        copy: impl FnOnce(&Seat, bool) + Send + 'static,
    ) -> Option<Job> {
        if is_queued || bytes <= COPY_LIMIT {
            let _inside = self.account.enter(call.op.name(), &call.site);
            copy(self, false);
            return None;
        }
        Some(Box::new(|seat| copy(seat, true)))
    }

    fn send_call(
        &self,
        mode: &Mode,
        site: &Site,
        to: usize,
        data: View<'_>,
    ) -> Result<Arc<Call>, CommError> {
        let op = Op::Send { to: self.world_root(to), count: data.len() };
        let call = self.call(mode, site, op, Some(data));
        self.check_member(&call, "to", to)?;
        self.account.count(data.byte_len());
        Ok(self.note(call))
    }

    fn recv_call(
        &self,
        mode: &Mode,
        site: &Site,
        from: usize,
        data: View<'_>,
    ) -> Result<Arc<Call>, CommError> {
        let op = Op::Recv { from: self.world_root(from), count: data.len() };
        let call = self.call(mode, site, op, Some(data));
        self.check_member(&call, "from", from)?;
        self.account.count(0);
        Ok(self.note(call))
    }
}

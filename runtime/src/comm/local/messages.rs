//! Messages, as a seat issues them.

use std::sync::Arc;

use crate::backend::{Buffer, DType, View, ViewMut};
use crate::comm::account::Begin;
use crate::comm::call::{Call, Op};
use crate::comm::pending::{Overdue, Promise};
use crate::comm::{CommError, Pending, Site};

use super::operand::COPY_LIMIT;
use super::progress::Job;
use super::reader::{Delivery, Received};
use super::seat::{Mode, Outcome, Seat};

impl Seat {
    pub fn send(&self, site: &Site, to: usize, data: View<'_>) -> Outcome {
        let call = self.send_call(Mode::Synchronous, site, to, data)?;
        let inside = self.account.enter(call.op.name(), site);
        self.group.mailboxes[to].send(&self.group, self.member, &call, data)?;
        self.account.transferred(&call, data.bytes().len(), Begin::at(inside.start));
        Ok(())
    }

    pub fn recv(&self, site: &Site, from: usize, data: ViewMut<'_>) -> Outcome {
        let call = self.recv_call(Mode::Synchronous, site, from, data.len(), data.dtype())?;
        let _inside = self.account.enter(call.op.name(), site);
        let mailbox = &self.group.mailboxes[self.member];
        let begin = mailbox.recv(&self.group, from, &call, data, &self.account)?;
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
        let bytes = data.view().bytes().len();
        let issue = || {
            let call = self.send_call(Mode::Asynchronous, site, to, data.view())?;
            let mailbox = &self.group.mailboxes[to];
            Ok((mailbox.start_send(&self.group, self.member, &call, &data)?, call))
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
            promise.keep(Ok(()));
            return None;
        };
        let sent = Arc::clone(&call);
        self.now_or_later(&call, bytes, move |seat, on_its_thread| {
            let begin = seat.account.begin();
            seat.group.mailboxes[to].fill(seat.member, reader, data.view());
            seat.account.message_transferred(&sent, bytes, begin, on_its_thread);
            drop(data);
            promise.keep(Ok(()));
        })
    }

    /// Issues the receipt of a message. What is left to do, if anything, does not wait for anyone.
    pub fn start_recv(&self, site: &Site, from: usize, data: Buffer) -> (Pending, Option<Job>) {
        let (promise, mut pending) = self.promise(site);
        let (len, dtype) = (data.len(), data.dtype());
        let call = match self.recv_call(Mode::Asynchronous, site, from, len, dtype) {
            Ok(call) => call,
            Err(error) => {
                promise.keep(Err(error));
                return (pending, None);
            }
        };
        let delivery = Delivery { data, promise, account: Arc::clone(&self.account) };
        let mailbox = &self.group.mailboxes[self.member];
        match mailbox.start_recv(&self.group, from, &call, delivery) {
            Received::Letter(letter, mut delivery) => {
                let expected = Arc::clone(&call);
                let job = self.now_or_later(&call, len * dtype.bytes(), move |_, on_its_thread| {
                    delivery.copy(&expected, letter.view(), on_its_thread);
                    // The sender may look for its buffer once the receiver has the message.
                    drop(letter);
                    delivery.complete();
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

    /// Copies a small message at once, which takes less time than to tell another thread; else gives what is to be done.
    fn now_or_later(
        &self,
        call: &Call,
        bytes: usize,
        copy: impl FnOnce(&Seat, bool) + Send + 'static,
    ) -> Option<Job> {
        if bytes <= COPY_LIMIT {
            let _inside = self.account.enter(call.op.name(), &call.site);
            copy(self, false);
            return None;
        }
        Some(Box::new(|seat| copy(seat, true)))
    }

    fn send_call(
        &self,
        mode: Mode,
        site: &Site,
        to: usize,
        data: View<'_>,
    ) -> Result<Arc<Call>, CommError> {
        let op = Op::Send { to: self.world_root(to), count: data.len() };
        let call = self.call(mode, site, op, Some(data.dtype()));
        self.check_member(&call, "to", to)?;
        self.account.count(data.bytes().len());
        Ok(self.note(call))
    }

    fn recv_call(
        &self,
        mode: Mode,
        site: &Site,
        from: usize,
        count: usize,
        dtype: DType,
    ) -> Result<Arc<Call>, CommError> {
        let op = Op::Recv { from: self.world_root(from), count };
        let call = self.call(mode, site, op, Some(dtype));
        self.check_member(&call, "from", from)?;
        self.account.count(0);
        Ok(self.note(call))
    }
}

//! Blocking and asynchronous point-to-point messages of a member.

use std::sync::Arc;
use std::time::Instant;

use crate::accounting::TransferStart;
use crate::call::Call;
use crate::completion::{Deadline, Promise};
use crate::in_use::InUse;
use crate::{Completion, Peer};
use meshwright_backend::{Buffer, View, ViewMut};

use super::device_stream::DeviceStream;
use super::mailbox::Received;
use super::member::{CallResult, LocalMember};
use super::message::MessageData;
use super::operand::COPY_LIMIT;
use super::progress::Job;
use super::receiver::Delivery;

impl LocalMember {
    /// Sends a message without waiting for its receiver.
    pub fn send(&self, call: &Arc<Call>, to: Peer, data: View<'_>) -> CallResult {
        self.note_call(call);
        let start = Instant::now();
        let message = MessageData::from_own(data, self.message_stream(call, data));
        let mailbox = &self.group.mailboxes[to.group_rank];
        self.group.run_step(|group| mailbox.send(group, self.group_rank(), call, &message))?;
        self.accounting().finish_transfer(call, TransferStart::blocking(start));
        Ok(())
    }

    /// Waits for a message.
    pub fn recv(&self, call: &Arc<Call>, from: Peer, data: ViewMut<'_>) -> CallResult {
        self.note_call(call);
        let stream = self.message_stream(call, data.as_view());
        let mailbox = &self.group.mailboxes[self.group_rank()];
        let accounting = self.accounting();
        let from = from.group_rank;
        let start = self
            .group
            .run_step(|group| mailbox.recv(group, from, call, data, stream, accounting))?;
        accounting.finish_transfer(call, TransferStart::blocking(start));
        Ok(())
    }

    /// Issues an asynchronous send. The remaining job, if any, does not wait for another rank.
    pub fn start_send(
        &self,
        call: &Arc<Call>,
        to: Peer,
        data: Arc<Buffer>,
    ) -> (Completion, Option<Job>) {
        self.note_call(call);
        let (own, to) = (self.group_rank(), to.group_rank);
        let stream = self.message_stream(call, data.view());
        let ready = stream.as_ref().map(|stream| stream.ready.clone());
        let mailbox = &self.group.mailboxes[to];
        let issued =
            self.group.run_step(|group| mailbox.start_send(group, own, call, &data, ready));
        let receiver = match issued {
            Ok(receiver) => receiver,
            Err(error) => return (Completion::completed(Err(error)), None),
        };
        let Some(receiver) = receiver else {
            let accounting = self.accounting();
            accounting.finish_message(call, accounting.start_transfer(), false);
            return (Completion::completed(Ok(None)), None);
        };
        let (promise, promised) = Promise::new(self.world_rank(), &self.group.ranks().deadlock);
        let sent = Arc::clone(call);
        let copies_now = stream.is_some() || data.view().byte_len() <= COPY_LIMIT;
        let job = self.copy_now_or_later(call, copies_now, move |member, on_message_thread| {
            let start = member.accounting().start_transfer();
            let message = MessageData::from_own(data.view(), stream);
            let mailbox = &member.group.mailboxes[to];
            let end = mailbox.deliver(member.group_rank(), receiver, &message);
            member.accounting().finish_message(&sent, start, on_message_thread);
            let device = data.allocator().device().cloned();
            promise.report(Ok(InUse::until(None, device.as_ref(), end).holding(Some(data))));
        });
        (promised.into(), job)
    }

    /// Issues an asynchronous receive. The remaining job, if any, does not wait for another rank.
    pub fn start_recv(
        &self,
        call: &Arc<Call>,
        from: Peer,
        data: Buffer,
    ) -> (Completion, Option<Job>) {
        self.note_call(call);
        let (promise, mut promised) = Promise::new(self.world_rank(), &self.group.ranks().deadlock);
        let (from, owner) = (from.group_rank, self.group_rank());
        let stream = self.message_stream(call, data.view());
        let ready = stream.as_ref().map(|stream| stream.ready.clone());
        let copies_now = stream.is_some() || data.view().byte_len() <= COPY_LIMIT;
        let delivery = Delivery { data, promise, accounting: Arc::clone(self.accounting()) };
        let mailbox = &self.group.mailboxes[owner];
        let start = |status: &_| mailbox.start_recv(status, from, call, delivery, ready.clone());
        match self.group.run_step(start) {
            Received::Stored(stored, mut delivery) => {
                let expected = Arc::clone(call);
                let job = self.copy_now_or_later(call, copies_now, move |_, on_message_thread| {
                    let message = stored.message(stream);
                    let (call, ready) = (&expected, ready.as_ref());
                    let end = delivery.copy_message(call, &message, ready, on_message_thread);
                    drop(message);
                    // Freed before the report: the sender may check its buffer once the receiver has the message.
                    stored.drop_after(end.clone());
                    delivery.complete(end);
                });
                (promised.into(), job)
            }
            Received::Waits(number) => {
                let group = Arc::clone(&self.group);
                let limit = group.ranks().time_limit(self.world_rank());
                let expire = move || {
                    group.run_step(|status| group.mailboxes[owner].expire(status, (from, number)));
                };
                promised.deadline = Some(Deadline { limit, expire: Box::new(expire) });
                (promised.into(), None)
            }
            Received::Failed => (promised.into(), None),
        }
    }

    /// The stream of a message on `data`, if it is in device memory.
    fn message_stream(&self, call: &Call, data: View<'_>) -> Option<DeviceStream> {
        data.device().map(|device| self.device_stream(call, device, None))
    }

    /// Runs `copy` now, or returns it as a job for the message thread. Copying a small message, or submitting a copy to
    /// a stream, takes less time than waking another thread.
    fn copy_now_or_later(
        &self,
        call: &Call,
        copies_now: bool,
        copy: impl FnOnce(&LocalMember, bool) + Send + 'static,
    ) -> Option<Job> {
        if copies_now {
            let _inside = self.accounting().enter(call.op.name(), &call.site, Instant::now());
            copy(self, false);
            return None;
        }
        Some(Box::new(|member| copy(member, true)))
    }
}

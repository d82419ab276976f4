//! Receivers that wait for their messages.

use std::sync::Arc;

use crate::backend::{Buffer, Moment};
use crate::comm::CommError;
use crate::comm::account::Account;
use crate::comm::busy::Busy;
use crate::comm::call::Call;
use crate::comm::pending::Promise;

use super::mailbox::Letter;
use super::message::Message;
use super::operand::Lent;

/// A receiver: a sender that comes now copies straight into its memory.
pub struct Reader {
    /// Among the receives from its sender, from 1.
    pub number: u64,
    pub call: Arc<Call>,
    pub target: Target,
    /// In memory of a device: from when on the target may be written.
    pub ready: Option<Moment>,
}

/// Where a message goes.
pub enum Target {
    /// Memory of a thread that waits in `recv`.
    Lent(Lent),
    /// A buffer that was handed over.
    Owned(Delivery),
}

impl Reader {
    /// Whether no thread waits here with it.
    pub fn was_left(&self) -> bool {
        matches!(self.target, Target::Owned(_))
    }

    /// Tells a receiver that was left why its message does not come.
    pub fn give_up(self, explain: impl FnOnce(&Call) -> CommError) {
        if let Target::Owned(delivery) = self.target {
            delivery.promise.keep(Err(explain(&self.call)));
        }
    }
}

/// A buffer for a message, and who waits for it.
pub struct Delivery {
    pub data: Buffer,
    pub promise: Promise<Buffer>,
    /// Of the receiver.
    pub account: Arc<Account>,
}

/// What became of a receiver that does not wait in person.
pub enum Received {
    /// Its message is there, to be copied.
    Letter(Letter, Delivery),
    /// It was left, under this number, for its message to come.
    Waits(u64),
    /// It was told why there will be no message.
    Refused,
}

impl Delivery {
    pub fn refuse(self, error: CommError) -> Received {
        self.promise.keep(Err(error));
        Received::Refused
    }

    /// Copies the message for `call`; `by_receiver` says whether by a thread of the receiver. Gives when that is done, if it
    /// is queued; the buffer is ready for it at `ready`.
    pub fn copy(
        &mut self,
        call: &Call,
        message: &Message<'_>,
        ready: Option<&Moment>,
        by_receiver: bool,
    ) -> Option<Moment> {
        let begin = self.account.begin();
        let target = Lent::target(&mut self.data.view_mut());
        // SAFETY: the buffer was handed over, and is in the same kind of memory, as the calls were compared.
        let end = unsafe { message.copy_to(&target, ready) };
        self.account.message_transferred(call, 0, begin, by_receiver);
        end
    }

    /// Tells the receiver that its message is there, or will be at `end`.
    pub fn complete(self, end: Option<Moment>) {
        let device = self.data.meter().device().cloned();
        self.promise.keep(Ok(Busy::until(self.data, device.as_ref(), end)));
    }
}

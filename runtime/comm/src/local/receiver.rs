//! Receivers that wait for their messages.

use std::sync::Arc;

use crate::CommError;
use crate::accounting::Accounting;
use crate::call::Call;
use crate::completion::Promise;
use crate::in_use::InUse;
use meshwright_backend::{Buffer, DeviceEvent};

use super::message::MessageData;
use super::operand::LentMemory;

/// A waiting receiver: a sender copies its message directly into the target.
pub struct Receiver {
    /// Number among the receives from its sender, from 1.
    pub number: u64,
    pub call: Arc<Call>,
    pub target: ReceiveTarget,
    /// Event after which a target in device memory may be written.
    pub ready: Option<DeviceEvent>,
}

/// The target of a message.
pub enum ReceiveTarget {
    /// Memory of a thread that waits in `recv`.
    Lent(LentMemory),
    /// A buffer of an asynchronous receive.
    Owned(Delivery),
}

impl Receiver {
    /// Returns `true` for an asynchronous receive, which blocks no thread.
    pub fn is_asynchronous(&self) -> bool {
        matches!(self.target, ReceiveTarget::Owned(_))
    }

    /// Fails an asynchronous receive.
    pub fn fail(self, error: impl FnOnce(&Call) -> CommError) {
        if let ReceiveTarget::Owned(delivery) = self.target {
            delivery.promise.fulfill(Err(error(&self.call)));
        }
    }
}

/// The buffer and promise of an asynchronous receive.
pub struct Delivery {
    pub data: Buffer,
    pub promise: Promise,
    /// Accounting of the receiver.
    pub accounting: Arc<Accounting>,
}

impl Delivery {
    /// Copies the message of `call` into the buffer, which is ready after the event `ready`. `on_message_thread` is set
    /// for the message thread of the receiver. Returns the event at the end if the copy was submitted to a stream.
    pub fn copy_message(
        &mut self,
        call: &Call,
        message: &MessageData<'_>,
        ready: Option<&DeviceEvent>,
        on_message_thread: bool,
    ) -> Option<DeviceEvent> {
        let start = self.accounting.start_transfer();
        let target = LentMemory::target(&mut self.data.view_mut());
        // SAFETY: the delivery owns the buffer, which is in the same kind of memory, as the calls were compared.
        let end = unsafe { message.copy_to(&target, ready) };
        self.accounting.finish_message(call, start, on_message_thread);
        end
    }

    /// Reports that the message is in the buffer, or will be at the event `end`.
    pub fn complete(self, end: Option<DeviceEvent>) {
        let device = self.data.allocator().device().cloned();
        self.promise.report(Ok(InUse::until(Some(self.data), device.as_ref(), end)));
    }
}

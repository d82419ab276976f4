//! Messages that were sent before their receivers were waiting.

use std::sync::Arc;

use crate::call::Call;
use crate::in_use::InUse;
use meshwright_backend::{Buffer, DeviceEvent};

use super::device_stream::DeviceStream;
use super::message::MessageData;

/// A message that was sent before its receiver was waiting.
pub struct StoredMessage {
    pub call: Arc<Call>,
    pub content: Content,
    /// Event after which content in device memory may be read.
    pub ready: Option<DeviceEvent>,
}

/// The data of a stored message.
pub enum Content {
    /// A copy.
    Copied(Buffer),
    /// The sender's buffer, which the sender does not change any more.
    Shared(Arc<Buffer>),
}

impl StoredMessage {
    /// The message, to be copied by the receiver on its stream.
    pub fn message(&self, stream: Option<DeviceStream>) -> MessageData<'_> {
        MessageData { data: self.buffer().view(), stream, ready: self.ready.clone() }
    }

    /// Drops the memory, which is read until the event `end`.
    pub fn drop_after(self, end: Option<DeviceEvent>) {
        let device = self.buffer().allocator().device().cloned();
        drop(InUse::until(self.content, device.as_ref(), end));
    }

    fn buffer(&self) -> &Buffer {
        match &self.content {
            Content::Copied(buffer) => buffer,
            Content::Shared(buffer) => buffer,
        }
    }
}

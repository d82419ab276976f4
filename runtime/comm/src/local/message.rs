//! Copy of a message from the memory of its sender to that of its receiver.

use meshwright_backend::{DeviceEvent, StreamKind, View};

use super::device_stream::DeviceStream;
use super::operand::LentMemory;

/// The data of a message, and the stream of its copy if it is in device memory.
#[derive(Clone)]
pub struct MessageData<'a> {
    pub data: View<'a>,
    pub stream: Option<DeviceStream>,
    /// Event after which that stream may read `data`.
    pub ready: Option<DeviceEvent>,
}

impl<'a> MessageData<'a> {
    /// Creates a message that the rank of `stream` sends itself.
    pub fn from_own(data: View<'a>, stream: Option<DeviceStream>) -> MessageData<'a> {
        // The compute stream is ordered after its own work.
        let other_stream = stream.as_ref().filter(|stream| stream.stream != StreamKind::Compute);
        let ready = other_stream.map(|stream| stream.ready.clone());
        MessageData { data, stream, ready }
    }

    /// Copies the message to `target`, which has the same dtype and length and is ready after `target_ready`. Returns
    /// the event at the end of the copy if it was submitted to a stream.
    ///
    /// # Safety
    /// As [`LentMemory::write`], for the whole memory; `target` must be in the same kind of memory.
    pub unsafe fn copy_to(
        &self,
        target: &LentMemory,
        target_ready: Option<&DeviceEvent>,
    ) -> Option<DeviceEvent> {
        assert!(
            target.dtype() == self.data.dtype() && target.len() == self.data.len(),
            "a message does not have the size of its target"
        );
        let (to, from, bytes) =
            (target.run_address(0..0), self.data.address(), self.data.byte_len());
        let Some(stream) = &self.stream else {
            // SAFETY: both have this length, and the caller guarantees that the target is exclusive.
            unsafe { to.copy_from_nonoverlapping(from, bytes) };
            return None;
        };
        self.ready.iter().chain(target_ready).for_each(|event| stream.wait_for(event));
        if bytes > 0 {
            // SAFETY: as above, and the stream waits until both are ready.
            unsafe { stream.device.copy(stream.stream, to, from, bytes) };
        }
        Some(stream.record_event())
    }
}

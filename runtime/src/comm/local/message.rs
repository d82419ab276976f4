//! A message on its way from memory to memory.

use crate::backend::{Moment, Queue, View};

use super::device_queue::DeviceQueue;
use super::operand::Lent;

/// What is to be copied, and where the copy is queued if it is in memory of a device.
#[derive(Clone)]
pub struct Message<'a> {
    pub data: View<'a>,
    pub queue: Option<DeviceQueue>,
    /// From when on `data` may be read by that queue.
    pub ready: Option<Moment>,
}

impl<'a> Message<'a> {
    /// A message that the rank of `queue` sends itself.
    pub fn own(data: View<'a>, queue: Option<DeviceQueue>) -> Message<'a> {
        // The compute queue itself needs no reminder.
        let beside = queue.as_ref().filter(|queue| queue.queue != Queue::Compute);
        let ready = beside.map(|queue| queue.ready.clone());
        Message { data, queue, ready }
    }

    /// Copies it over `target`, which has the same dtype and length, and is ready at `target_ready`. Gives when that is done,
    /// if it is queued.
    ///
    /// # Safety
    /// As [`Lent::write`], for the whole memory; `target` is in the same kind of memory.
    pub unsafe fn copy_to(&self, target: &Lent, target_ready: Option<&Moment>) -> Option<Moment> {
        assert!(
            target.dtype() == self.data.dtype() && target.len() == self.data.len(),
            "a message does not have the size of its target"
        );
        let (to, from, bytes) = (target.run(0..0), self.data.address(), self.data.byte_len());
        let Some(queue) = &self.queue else {
            // SAFETY: both are this long, and the target is exclusive by the promise of the caller.
            unsafe { to.copy_from_nonoverlapping(from, bytes) };
            return None;
        };
        self.ready.iter().chain(target_ready).for_each(|moment| queue.wait_for(moment));
        if bytes > 0 {
            // SAFETY: as above, and the queue waits until both are ready.
            unsafe { queue.device.copy(queue.queue, to, from, bytes) };
        }
        Some(queue.mark())
    }
}

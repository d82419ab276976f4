//! Where the share of a member is queued when the operands are in memory of a device.
//!
//! All ranks of the process share one device, so that addresses of one are usable by the others. The host threads only
//! meet, as they do for host memory; that nobody reads or writes too early or too late is left to the queues, which wait
//! for each other's moments:
//! 1. A member brings the moment from which on its memory may be used.
//! 2. It queues its share after the moments of all members, and marks the end.
//! 3. Who has lent memory lets its queue wait for the ends of the others.

use std::sync::Arc;

use crate::backend::{Device, Moment, Queue};

use super::seat::Mode;

/// A queue of the calling rank.
#[derive(Clone)]
pub struct DeviceQueue {
    pub device: Arc<dyn Device>,
    pub queue: Queue,
    /// From when on the rank's own operands may be used.
    pub ready: Moment,
}

impl DeviceQueue {
    /// The queue of a call on `device`: that of the model for a synchronous one; for an asynchronous one that of the group,
    /// with `number`.
    pub fn new(device: &Arc<dyn Device>, mode: &Mode, number: usize) -> DeviceQueue {
        let (queue, ready) = match mode {
            Mode::Synchronous => (Queue::Compute, None),
            Mode::Asynchronous(ready) => (Queue::Communication(number), ready.clone()),
        };
        let ready = ready.unwrap_or_else(|| device.mark(Queue::Compute));
        DeviceQueue { device: Arc::clone(device), queue, ready }
    }

    /// What is queued from now on is done after `moment`.
    pub fn wait_for(&self, moment: &Moment) {
        self.device.wait_for(self.queue, moment);
    }

    /// What is queued from now on is done after the own operands are ready.
    pub fn wait_for_own(&self) {
        if self.queue != Queue::Compute {
            self.wait_for(&self.ready);
        }
    }

    /// When what was queued so far is done.
    pub fn mark(&self) -> Moment {
        self.device.mark(self.queue)
    }
}

//! Data that waits in host memory for backward.

use std::cell::RefCell;
use std::sync::Arc;

use crate::backend::{Buffer, Category, Device, Moment, Queue};
use crate::comm::DeviceSpan;
use crate::trace::Arg;

use super::Rank;
use super::value::copy_to;

/// What was moved to host memory.
pub(crate) struct Offloaded(Buffer);

/// The transfers of one rank between its device and host memory, which run beside its kernels.
#[derive(Default)]
pub(crate) struct Offloading {
    /// What is leaving the device, and when it will have left: its memory is free for other uses then.
    leaving: RefCell<Option<(Arc<Buffer>, Moment)>>,
}

impl Offloaded {
    /// Moves `data` to host memory. Where that is the memory that the rank computes in, it is copied.
    pub(crate) fn new(rank: &Rank, data: Arc<Buffer>) -> Offloaded {
        let Some(device) = rank.meter().device() else {
            return Offloaded(copy_to(rank, &data, Category::Offloaded));
        };
        let mut copy = rank.meter().alloc(data.dtype(), data.len(), Category::Offloaded);
        device.wait_for(Queue::Transfer, &device.mark(Queue::Compute));
        let span = rank.open(Queue::Transfer);
        // SAFETY: the data is there after the work of the compute queue so far, and both stay in place: the data by
        // `leaving`, and the copy because what is made of its memory later is written by the same queue.
        unsafe { device.copy_out(copy.view_mut().bytes_mut(), data.view().address()) };
        close(span, "offload", &data);
        let left = device.mark(Queue::Transfer);
        // One behind: the transfer before this one has had time to finish.
        let before = rank.offloading().leaving.replace(Some((data, left)));
        settle(&**device, before);
        Offloaded(copy)
    }

    /// Moves the data back.
    pub(crate) fn fetch(self, rank: &Rank) -> Buffer {
        let Some(device) = rank.meter().device() else {
            return copy_to(rank, &self.0, Category::Activations);
        };
        rank.offloading().settle(rank);
        let mut data = rank.meter().alloc(self.0.dtype(), self.0.len(), Category::Activations);
        device.wait_for(Queue::Transfer, &device.mark(Queue::Compute));
        let span = rank.open(Queue::Transfer);
        // SAFETY: the memory of `data` is free after the work of the compute queue so far, and is used only after the
        // transfer; the source stays in place, as in `new`.
        unsafe { device.copy_in(data.view_mut().address(), self.0.view().bytes()) };
        close(span, "fetch", &data);
        device.wait_for(Queue::Compute, &device.mark(Queue::Transfer));
        data
    }
}

/// Ends the span of a transfer of `data`.
fn close(span: Option<DeviceSpan>, name: &'static str, data: &Buffer) {
    if let Some(span) = span {
        let bytes = Arg::Count(data.view().byte_len() as u64);
        span.close(name, "transfer", vec![("bytes", bytes)]);
    }
}

impl Offloading {
    /// Everything that was leaving has left, as far as kernels are concerned that are queued from now on.
    pub(crate) fn settle(&self, rank: &Rank) {
        if let Some(device) = rank.meter().device() {
            settle(&**device, self.leaving.take());
        }
    }
}

/// Gives the memory of what was leaving to the kernels that are queued from now on.
fn settle(device: &dyn Device, leaving: Option<(Arc<Buffer>, Moment)>) {
    if let Some((_data, left)) = leaving {
        device.wait_for(Queue::Compute, &left);
    }
}

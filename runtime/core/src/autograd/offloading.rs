//! Activation offloading: data that is moved to host memory until backward.

use std::cell::RefCell;
use std::sync::Arc;

use crate::context::Rank;
use meshwright_backend::{Buffer, Category, Device, DeviceEvent, StreamKind};
use meshwright_comm::__internal::DeviceSpan;
use meshwright_comm::trace::Arg;

/// Data in host memory.
pub(crate) struct Offloaded(Buffer);

/// Transfers of one rank between its device and host memory, which overlap the rank's kernels.
#[derive(Default)]
pub(crate) struct Offloading {
    /// Data that is being copied to the host, and the event after which its device memory may be reused.
    in_progress: RefCell<Option<(Arc<Buffer>, DeviceEvent)>>,
}

impl Rank {
    pub(crate) fn offloading(&self) -> &Offloading {
        self.session_state()
    }
}

impl Offloaded {
    /// Moves `data` to host memory, or copies it if the rank computes on the host.
    pub(crate) fn new(rank: &Rank, data: Arc<Buffer>) -> Offloaded {
        let Some(device) = rank.allocator().device() else {
            return Offloaded(rank.copy_buffer(&data, Category::Offloaded));
        };
        let mut copy = rank.allocator().alloc(data.dtype(), data.len(), Category::Offloaded);
        device.wait_for(StreamKind::Transfer, &device.mark_stream(StreamKind::Compute));
        let span = rank.open_span(StreamKind::Transfer);
        // SAFETY: the data is written by work already queued on the compute stream, and both buffers stay in place: the
        // data is held by `in_progress`, and later uses of the copy's memory are written by the same stream.
        unsafe {
            device.copy_out(
                copy.view_mut().address(),
                data.view().address(),
                data.view().byte_len(),
            );
        }
        close_span(span, "offload", &data);
        let copied = device.mark_stream(StreamKind::Transfer);
        // One transfer behind: the previous one has had time to finish.
        let previous = rank.offloading().in_progress.replace(Some((data, copied)));
        wait_for_transfer(&**device, previous);
        Offloaded(copy)
    }

    /// Moves the data back.
    pub(crate) fn fetch(self, rank: &Rank) -> Buffer {
        let Some(device) = rank.allocator().device() else {
            return rank.copy_buffer(&self.0, Category::Activations);
        };
        rank.offloading().finish_transfers(rank);
        let mut data = rank.allocator().alloc(self.0.dtype(), self.0.len(), Category::Activations);
        device.wait_for(StreamKind::Transfer, &device.mark_stream(StreamKind::Compute));
        let span = rank.open_span(StreamKind::Transfer);
        // SAFETY: the memory of `data` is free after the work queued on the compute stream so far, and is used only
        // after the transfer; the source stays in place, as in `new`.
        unsafe {
            device.copy_in(
                data.view_mut().address(),
                self.0.view().address(),
                self.0.view().byte_len(),
            );
        }
        close_span(span, "fetch", &data);
        device.wait_for(StreamKind::Compute, &device.mark_stream(StreamKind::Transfer));
        data
    }
}

/// Closes the span of a transfer of `data`.
fn close_span(span: Option<DeviceSpan>, name: &'static str, data: &Buffer) {
    if let Some(span) = span {
        let bytes = Arg::Count(data.view().byte_len() as u64);
        span.close(name, "transfer", vec![("bytes", bytes)]);
    }
}

impl Offloading {
    /// Makes kernels that are queued from now on wait for all transfers to the host.
    pub(crate) fn finish_transfers(&self, rank: &Rank) {
        if let Some(device) = rank.allocator().device() {
            wait_for_transfer(&**device, self.in_progress.take());
        }
    }
}

/// Makes the compute stream wait for a transfer, after which the memory of its data may be reused.
fn wait_for_transfer(device: &dyn Device, transfer: Option<(Arc<Buffer>, DeviceEvent)>) {
    if let Some((_data, copied)) = transfer {
        device.wait_for(StreamKind::Compute, &copied);
    }
}

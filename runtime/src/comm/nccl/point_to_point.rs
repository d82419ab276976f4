//! Point-to-point messages, over one communicator for each pair of members and direction.
//!
//! On the device, a message waits for its receiver. With [a communicator](super::pair_comms) and a stream for each direction
//! between each pair of members, a message waits for its own partner only, and two members that send to each other before
//! they receive do not block each other.

use std::sync::Arc;

use crate::backend::{Buffer, Category, DeviceEvent, StreamKind, View};
use crate::comm::{Call, CommError, Completion, Operands, Peer};
use crate::layout::{AxisId, AxisSet};

use super::api::{CommStream, Transfer};
use super::group::{CallResult, NcclGroup};
use super::rank_resources::RankResources;

/// The first stream of messages, after those of all sets of axes.
const FIRST_STREAM: usize = 256;

impl NcclGroup {
    /// Sends a message: of an asynchronous call the buffer itself, which is kept until the receiver has it, otherwise a
    /// copy, so that the sender may change its memory immediately.
    pub(super) fn issue_send(
        &self,
        call: &Arc<Call>,
        to: Peer,
        operands: Operands<'_>,
    ) -> Completion {
        let data = match (&operands, operands.views().0) {
            (Operands::Owned { src: Some(data), .. }, _) if call.on_device => Arc::clone(data),
            (_, Some(data)) => Arc::new(self.copy_to_device(data)),
            (_, None) => return Completion::done(Err(call.refuse("its data is missing"))),
        };
        let (src, count) = (data.view().address() as u64, data.len());
        let transfer = Transfer::Send { src, count, to: 1 };
        let direction = (self.member.group_rank(), to.group_rank);
        let end = self.submit_message(call, direction, transfer, Some(data));
        Completion::done(end.map(|_| None))
    }

    /// Receives a message, into a staging buffer first if the operand is in host memory.
    pub(super) fn issue_recv(
        &self,
        call: &Arc<Call>,
        from: Peer,
        mut operands: Operands<'_>,
    ) -> Completion {
        let RankResources { device, allocator, watchdog, .. } = &*self.resources;
        let direction = (from.group_rank, self.member.group_rank());
        let Some(mut data) = operands.views_mut().1 else {
            return Completion::done(Err(call.refuse("its buffer is missing")));
        };
        let count = data.len();
        if call.on_device {
            let transfer = Transfer::Recv { dst: data.address() as u64, count, from: 0 };
            let end = self.submit_message(call, direction, transfer, None);
            return self.completion(operands, end);
        }
        let mut staged = allocator.alloc(data.dtype(), count, Category::Communication);
        let dst = staged.view_mut().address() as u64;
        let mut receive = || -> CallResult {
            let transfer = Transfer::Recv { dst, count, from: 0 };
            let end = self.submit_message(call, direction, transfer, None)?;
            device.wait_for(StreamKind::Compute, &end);
            watchdog.wait_for_event(&end)?;
            if count > 0 {
                // SAFETY: `staged` holds as many elements.
                unsafe { device.download(staged.view().address(), data.bytes_mut()) };
            }
            Ok(())
        };
        let outcome = receive();
        let (_, dst) = operands.into_buffers();
        Completion::done(outcome.map(|()| dst))
    }

    /// Copies memory of the host, or of the device after the work of the compute stream so far.
    fn copy_to_device(&self, data: View<'_>) -> Buffer {
        let RankResources { device, allocator, .. } = &*self.resources;
        if data.device().is_none() {
            return self.staged_copy(data);
        }
        let mut copy = allocator.alloc(data.dtype(), data.len(), Category::Communication);
        if !data.is_empty() {
            let (dst, bytes) = (copy.view_mut().address(), data.byte_len());
            // SAFETY: the copy has room for the elements, and is exclusive.
            unsafe { device.copy(StreamKind::Compute, dst, data.address(), bytes) };
        }
        copy
    }

    /// Submits a message from the first to the second member of `direction`. Keeps `held` until the event at its end.
    fn submit_message(
        &self,
        call: &Call,
        direction: (usize, usize),
        transfer: Transfer,
        held: Option<Arc<Buffer>>,
    ) -> Result<DeviceEvent, CommError> {
        let RankResources { device, watchdog, pair_comms, .. } = &*self.resources;
        watchdog.check()?;
        let along_pipeline = call.axes == AxisSet::of(AxisId::Pp);
        let comm = pair_comms.get(direction.0, direction.1).filter(|_| along_pipeline);
        let comm = comm.ok_or_else(|| {
            call.refuse("over NCCL, messages go to other ranks along the axis pp alone")
        })?;
        let start = self.accounting().start_transfer();
        let number = FIRST_STREAM + direction.0 * self.member.size() + direction.1;
        let stream = StreamKind::Communication(number);
        device.wait_for(stream, &device.mark(StreamKind::Compute));
        let span = self.accounting().open_span(stream);
        let text = call.to_string();
        let is_empty =
            matches!(transfer, Transfer::Send { count: 0, .. } | Transfer::Recv { count: 0, .. });
        if let (false, Some(dtype)) = (is_empty, call.dtype) {
            let stream = CommStream { comm, stream: device.handle(stream) };
            self.submit_transfers(&text, stream, dtype, &[transfer])?;
        }
        self.accounting().close_span(span, call);
        let end = device.mark(stream);
        watchdog.watch_call(text, end.clone(), held);
        self.accounting().finish_message(call, start, false);
        Ok(end)
    }
}

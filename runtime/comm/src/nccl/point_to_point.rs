//! Point-to-point messages, over [a communicator](super::message_comms) for each pair of members and direction, or over
//! one.
//!
//! On the device, a message waits for its receiver. With a communicator and a stream for each direction between each
//! pair of members, a message waits for its own partner only, and two members that send to each other before they
//! receive do not block each other. With one communicator, the messages of an exchange are a group, for whose end later
//! ones wait.

use std::sync::Arc;

use crate::{Call, CommError, CommOp, Completion, Operands};
use meshwright_backend::{Buffer, Category, DeviceEvent, StreamKind, View};
use meshwright_mesh::{AxisId, AxisSet};

use super::api::{CommStream, Transfer};
use super::group::{CallResult, NcclGroup};
use super::message_comms::Route;
use super::rank_resources::RankResources;

/// The first stream of messages, after the streams of all sets of axes.
const FIRST_STREAM: usize = 256;

/// A message, and the device memory that it reads or writes.
struct NcclMessage<'a> {
    call: Arc<Call>,
    route: Route,
    operands: Operands<'a>,
    /// The sent data, which is kept until the receiver has it.
    sent: Option<Arc<Buffer>>,
    /// Receives in place of an operand in host memory.
    staged: Option<Buffer>,
    address: u64,
    count: usize,
}

impl NcclMessage<'_> {
    fn transfer(&self) -> Transfer {
        let NcclMessage { route, address, count, .. } = *self;
        match self.call.op {
            CommOp::Send { .. } => Transfer::Send { src: address, count, to: route.receiver },
            _ => Transfer::Recv { dst: address, count, from: route.sender },
        }
    }
}

impl NcclGroup {
    /// Issues messages of one route as a group.
    ///
    /// An asynchronous call sends its buffer, which is kept until the receiver has it. A blocking call sends a copy, so
    /// that the sender may change its memory immediately. A receive into host memory goes into a staging buffer first.
    pub(super) fn issue_messages(&self, calls: Vec<(Arc<Call>, Operands<'_>)>) -> Vec<Completion> {
        let count = calls.len();
        let messages: Result<Vec<NcclMessage<'_>>, CommError> = calls
            .into_iter()
            .map(|(call, operands)| self.prepare_message(call, operands))
            .collect();
        let submitted = messages
            .and_then(|messages| self.submit_messages(&messages).map(|end| (messages, end)));
        match submitted {
            Ok((messages, end)) => {
                let complete = |message| self.complete_message(message, &end);
                messages.into_iter().map(complete).collect()
            }
            Err(error) => (0..count).map(|_| Completion::completed(Err(error.clone()))).collect(),
        }
    }

    fn prepare_message<'a>(
        &self,
        call: Arc<Call>,
        mut operands: Operands<'a>,
    ) -> Result<NcclMessage<'a>, CommError> {
        let allocator = self.resources.allocator();
        let route = self.route(&call)?;
        let on_device = call.on_device;
        let (mut sent, mut staged) = (None, None);
        let (address, count) = if matches!(call.op, CommOp::Send { .. }) {
            let data = match (&operands, operands.views().0) {
                (Operands::Owned { src: Some(data), .. }, _) if on_device => Arc::clone(data),
                (_, Some(data)) => Arc::new(self.copy_to_device(data)),
                (_, None) => return Err(call.refuse("its data is missing")),
            };
            let data = sent.insert(data);
            (data.view().address() as u64, data.len())
        } else {
            let Some(data) = operands.views_mut().1 else {
                return Err(call.refuse("its buffer is missing"));
            };
            if on_device {
                (data.address() as u64, data.len())
            } else {
                let room = allocator.alloc(data.dtype(), data.len(), Category::Communication);
                let room = staged.insert(room);
                (room.view_mut().address() as u64, room.len())
            }
        };
        Ok(NcclMessage { call, route, operands, sent, staged, address, count })
    }

    /// Returns the communicator and stream of a message.
    fn route(&self, call: &Call) -> Result<Route, CommError> {
        let own = self.member.group_rank();
        let (from, to) = match call.op {
            CommOp::Send { to, .. } => (own, to.group_rank),
            CommOp::Recv { from, .. } => (from.group_rank, own),
            _ => return Err(call.refuse("it is not a message")),
        };
        let along_pipeline = call.axes == AxisSet::of(AxisId::Pp);
        let comms = &self.resources.message_comms;
        let route = comms.route(from, to, self.member.size()).filter(|_| along_pipeline);
        route
            .ok_or_else(|| call.refuse("NCCL sends messages to other ranks along the axis pp only"))
    }

    /// Copies memory of the host, or of the device after the work of the compute stream so far.
    fn copy_to_device(&self, data: View<'_>) -> Buffer {
        let device = &self.resources.device;
        if data.device().is_none() {
            return self.staged_copy(data);
        }
        let mut copy =
            self.resources.allocator().alloc(data.dtype(), data.len(), Category::Communication);
        if !data.is_empty() {
            let (dst, bytes) = (copy.view_mut().address(), data.byte_len());
            // SAFETY: the copy has room for the elements, and is exclusive.
            unsafe { device.copy(StreamKind::Compute, dst, data.address(), bytes) };
        }
        copy
    }

    /// Submits messages, whose sent data is kept until the event at their end.
    fn submit_messages(&self, messages: &[NcclMessage<'_>]) -> Result<DeviceEvent, CommError> {
        let RankResources { device, watchdog, .. } = &*self.resources;
        watchdog.check_failure()?;
        let route = messages.first().map(|message| message.route);
        let Some(Route { comm, stream, .. }) = route else {
            return Ok(device.mark_stream(StreamKind::Compute));
        };
        let start = self.accounting().start_transfer();
        let stream = StreamKind::Communication(FIRST_STREAM + stream);
        self.resources.begin_call(stream);
        let open = |_: &NcclMessage<'_>| self.accounting().open_span(stream);
        let spans: Vec<_> = messages.iter().map(open).collect();
        let texts: Vec<String> = messages.iter().map(|message| message.call.to_string()).collect();
        let transfers: Vec<_> = messages
            .iter()
            .filter(|message| message.count > 0)
            .filter_map(|message| Some((message.call.dtype?, message.transfer())))
            .collect();
        if !transfers.is_empty() {
            let handle = CommStream { comm, stream: device.stream_handle(stream) };
            self.submit_transfers(&texts.join("; "), handle, &transfers)?;
        }
        let end = self.resources.end_call(stream);
        for ((message, span), text) in messages.iter().zip(spans).zip(texts) {
            self.accounting().close_span(span, &message.call);
            let kept = message.sent.clone().filter(|_| !device.is_capturing());
            watchdog.watch_call(text, end.clone(), kept);
            self.accounting().finish_message(&message.call, start, false);
        }
        Ok(end)
    }

    /// The completion of a submitted message. A send is complete immediately, as the watchdog keeps its data; in a CUDA
    /// graph, whose memory is reused in the order of the capture, it is complete at its end.
    fn complete_message(&self, message: NcclMessage<'_>, end: &DeviceEvent) -> Completion {
        let NcclMessage { call, mut operands, sent, staged, .. } = message;
        let device = &self.resources.device;
        match (&call.op, staged) {
            (CommOp::Send { .. }, _) if device.is_capturing() => {
                Completion::at_event(None, sent, device, end.clone())
            }
            (CommOp::Send { .. }, _) => Completion::completed(Ok(None)),
            (_, None) => self.completion(operands, end.clone()),
            (_, Some(staged)) => {
                let outcome = self.read_staged(&staged, &mut operands, end);
                let (_, dst) = operands.into_buffers();
                Completion::completed(outcome.map(|()| dst))
            }
        }
    }

    /// Waits for a message in a staging buffer, and copies it to host memory.
    fn read_staged(
        &self,
        staged: &Buffer,
        operands: &mut Operands<'_>,
        end: &DeviceEvent,
    ) -> CallResult {
        let RankResources { device, watchdog, .. } = &*self.resources;
        device.wait_for(StreamKind::Compute, end);
        watchdog.wait_for_event(end)?;
        if let (Some(mut data), false) = (operands.views_mut().1, staged.is_empty()) {
            // SAFETY: `staged` holds as many elements.
            unsafe { device.download(staged.view().address(), data.bytes_mut()) };
        }
        Ok(())
    }
}

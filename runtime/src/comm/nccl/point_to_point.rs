//! Point-to-point messages, over one communicator for each pair of members and direction.
//!
//! On the device, a message waits for its receiver. With a communicator and a stream for each direction between each pair of
//! members, a message waits for its own partner only, and two members that send to each other before they receive do not
//! block each other.

use std::collections::HashMap;
use std::sync::Arc;

use crate::backend::{Buffer, Category, DeviceEvent, StreamKind, View};
use crate::comm::{Call, CommError, Completion, Operands, Peer};
use crate::layout::{AxisId, AxisSet};

use super::api::{Comm, CommStream, Transfer};
use super::engine::Core;
use super::group::{CallResult, NcclGroup};

/// The communicators of one member, by sender and receiver. In each, the sender is rank 0 and the receiver rank 1.
#[derive(Debug, Default)]
pub struct PairComms {
    comms: HashMap<(usize, usize), Comm>,
}

impl PairComms {
    /// Creates them by `split`, with a color (`None` if this member does not take part) and a key. All members make the same
    /// splits: in every round each member has at most one partner.
    pub fn create(
        members: usize,
        member: usize,
        mut split: impl FnMut(Option<usize>, usize) -> Result<Option<Comm>, CommError>,
    ) -> Result<PairComms, CommError> {
        let mut comms = HashMap::new();
        for round in 0..rounds(members) {
            let partner = partner(members, round, member);
            let pair = partner.map(|partner| (member.min(partner), member.max(partner)));
            for upwards in [true, false] {
                let direction =
                    pair.map(|(low, high)| if upwards { (low, high) } else { (high, low) });
                let key = direction.map_or(0, |(from, _)| usize::from(from != member));
                let comm = split(pair.map(|(low, _)| low), key)?;
                if let (Some(direction), Some(comm)) = (direction, comm) {
                    comms.insert(direction, comm);
                }
            }
        }
        Ok(PairComms { comms })
    }

    /// The communicator of messages of `from` to `to`.
    fn get(&self, from: usize, to: usize) -> Option<Comm> {
        self.comms.get(&(from, to)).copied()
    }
}

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
        let Core { device, allocator, watchdog, .. } = &*self.core;
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
        let Core { device, allocator, .. } = &*self.core;
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
        let Core { device, watchdog, pair_comms, .. } = &*self.core;
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

/// Number of rounds in which each pair of `members` meets once.
fn rounds(members: usize) -> usize {
    if members < 2 { 0 } else { members.next_multiple_of(2) - 1 }
}

/// Returns the partner of `member` in a round, by the circle method for tournaments: the last member, or an empty place if
/// their number is odd, stays fixed, and the others rotate around it.
fn partner(members: usize, round: usize, member: usize) -> Option<usize> {
    let rotating = rounds(members);
    let fixed = rotating;
    let opposite = |place: usize| (2 * round + rotating - place) % rotating;
    let met = match member {
        _ if member == fixed => round,
        _ if opposite(member) == member => fixed,
        _ => opposite(member),
    };
    (met < members).then_some(met)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_of_members_meets_once() {
        for members in 1..=9 {
            let mut met = vec![0; members * members];
            for round in 0..rounds(members) {
                for member in 0..members {
                    if let Some(other) = partner(members, round, member) {
                        assert_eq!(partner(members, round, other), Some(member));
                        assert_ne!(member, other);
                        met[member * members + other] += 1;
                    }
                }
            }
            for (idx, times) in met.iter().enumerate() {
                assert_eq!(*times, usize::from(idx / members != idx % members), "{members}");
            }
        }
    }
}

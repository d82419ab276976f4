//! Communicators for messages: one for each two members and direction.
//!
//! A message is a transfer that waits, on the device, for its receiver. With a communicator and a queue for each direction
//! between each two members, messages wait for nothing but their own partner, and two members that send to each other
//! before they receive do not block each other.

use std::collections::HashMap;
use std::sync::Arc;

use crate::backend::{Buffer, Category, Moment, Queue, View, ViewMut};
use crate::comm::call::{Call, Op};
use crate::comm::{CommError, Communicator, Site};
use crate::layout::{AxisId, AxisSet};

use super::api::{Comm, On, Transfer};
use super::communicator::{NcclCommunicator, Outcome};
use super::engine::Core;

/// The communicators of one member, by sender and receiver. In each, the sender is rank 0 and the receiver rank 1.
#[derive(Debug, Default)]
pub struct Edges {
    comms: HashMap<(usize, usize), Comm>,
}

impl Edges {
    /// Makes them by `split`, with a color (none: this member takes no part) and a key. All members make the same splits:
    /// in every round each member has one partner at most.
    pub fn make(
        members: usize,
        member: usize,
        mut split: impl FnMut(Option<usize>, usize) -> Result<Option<Comm>, CommError>,
    ) -> Result<Edges, CommError> {
        let mut comms = HashMap::new();
        for round in 0..rounds(members) {
            let partner = partner(members, round, member);
            let pair = partner.map(|partner| (member.min(partner), member.max(partner)));
            for upwards in [true, false] {
                let edge = pair.map(|(low, high)| if upwards { (low, high) } else { (high, low) });
                let key = edge.map_or(0, |(from, _)| usize::from(from != member));
                let comm = split(pair.map(|(low, _)| low), key)?;
                if let (Some(edge), Some(comm)) = (edge, comm) {
                    comms.insert(edge, comm);
                }
            }
        }
        Ok(Edges { comms })
    }

    /// That for messages of `from` to `to`.
    pub fn get(&self, from: usize, to: usize) -> Option<Comm> {
        self.comms.get(&(from, to)).copied()
    }
}

/// Queues of messages, behind those of all sets of axes.
const FIRST_QUEUE: usize = 256;

impl NcclCommunicator {
    /// Sends a copy of `data`, so that the model may change it at once.
    pub(super) fn send_copy(&self, site: &Site, to: usize, data: View<'_>) -> Outcome {
        let Core { device, meter, .. } = &*self.core;
        let mut copy = meter.alloc(data.dtype(), data.len(), Category::Communication);
        let dst = copy.view_mut().address();
        if !data.is_empty() {
            match data.device() {
                // SAFETY: the copy has room for the elements, and is exclusive.
                None => unsafe { device.upload(dst, data.bytes()) },
                // SAFETY: as above.
                Some(_) => unsafe {
                    device.copy(Queue::Compute, dst, data.address(), data.byte_len())
                },
            }
        }
        self.queue_send(site, to, Arc::new(copy), data.device().is_some(), false)
    }

    /// Sends `data`, which is kept until the receiver has it.
    pub(super) fn send_shared(&self, site: &Site, to: usize, data: Arc<Buffer>) -> Outcome {
        match data.view().device().is_some() {
            true => self.queue_send(site, to, data, true, true),
            false => self.send_copy(site, to, data.view()),
        }
    }

    fn queue_send(
        &self,
        site: &Site,
        to: usize,
        data: Arc<Buffer>,
        on_device: bool,
        started: bool,
    ) -> Outcome {
        let op = Op::Send { to: self.world_rank(to), count: data.len() };
        let call = Call { on_device, ..self.call(op, data.view(), started, site) };
        call.require_member("to", to, self.size())?;
        let transfer =
            Transfer::Send { src: data.view().address() as u64, count: data.len(), to: 1 };
        self.queue_message(&call, (self.member, to), transfer, Some(data)).map(drop)
    }

    /// Receives into `data`, which the model uses afterwards.
    pub(super) fn receive(&self, site: &Site, from: usize, mut data: ViewMut<'_>) -> Outcome {
        let Core { device, meter, watch, .. } = &*self.core;
        if data.device().is_some() {
            let end = self.queue_recv(site, from, data, false)?;
            self.account.model_waits(site, || device.wait_for(Queue::Compute, &end));
            return Ok(());
        }
        let mut staged = meter.alloc(data.dtype(), data.len(), Category::Communication);
        let end = self.queue_recv(site, from, staged.view_mut(), false)?;
        device.wait_for(Queue::Compute, &end);
        watch.wait(&end)?;
        if !data.is_empty() {
            // SAFETY: `staged` holds as many elements.
            unsafe { device.download(staged.view().address(), data.bytes_mut()) };
        }
        Ok(())
    }

    pub(super) fn queue_recv(
        &self,
        site: &Site,
        from: usize,
        data: ViewMut<'_>,
        started: bool,
    ) -> Result<Moment, CommError> {
        let op = Op::Recv { from: self.world_rank(from), count: data.len() };
        let call = self.call(op, data.as_view(), started, site);
        call.require_member("from", from, self.size())?;
        let transfer = Transfer::Recv { dst: data.address() as u64, count: data.len(), from: 0 };
        self.queue_message(&call, (from, self.member), transfer, None)
    }

    fn queue_message(
        &self,
        call: &Call,
        edge: (usize, usize),
        transfer: Transfer,
        held: Option<Arc<Buffer>>,
    ) -> Result<Moment, CommError> {
        let Core { device, watch, edges, .. } = &*self.core;
        watch.check()?;
        let along_pipeline = self.axes() == AxisSet::of(AxisId::Pp);
        let comm = edges.get(edge.0, edge.1).filter(|_| along_pipeline);
        let comm = comm.ok_or_else(|| {
            call.refuse("over NCCL, messages go to other ranks along the axis pp alone".into())
        })?;
        let bytes = call.op.sent(call.dtype, self.member, self.members());
        self.account.count(bytes);
        let begin = self.account.begin();
        let number = FIRST_QUEUE + edge.0 * self.size() + edge.1;
        let queue = Queue::Communication(number);
        device.wait_for(queue, &device.mark(Queue::Compute));
        let span = self.account.open(queue);
        let text = call.to_string();
        let is_empty =
            matches!(transfer, Transfer::Send { count: 0, .. } | Transfer::Recv { count: 0, .. });
        if let (false, Some(dtype)) = (is_empty, call.dtype) {
            let on = On { comm, stream: device.handle(queue) };
            self.queue_group(&text, on, dtype, &[transfer])?;
        }
        self.account.close(span, call, bytes);
        let end = device.mark(queue);
        watch.queued(text, end.clone(), held);
        self.account.message_transferred(call, bytes, begin, false);
        Ok(end)
    }
}

/// Rounds until each two of `members` have met.
fn rounds(members: usize) -> usize {
    if members < 2 { 0 } else { members.next_multiple_of(2) - 1 }
}

/// Who `member` meets in a round: one member, or nobody for an odd number, keeps its place, and the others move on
/// around it (the circle method for tournaments).
fn partner(members: usize, round: usize, member: usize) -> Option<usize> {
    let turning = rounds(members);
    let fixed = turning;
    let opposite = |place: usize| (2 * round + turning - place) % turning;
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
    fn each_two_members_meet_once() {
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

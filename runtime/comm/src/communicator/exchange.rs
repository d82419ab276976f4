//! Several messages that are started together.

use std::sync::Arc;
use std::time::Instant;

use meshwright_backend::Buffer;

use super::{CommOp, Communicator, Completion, Operands, PendingCall, Site};

impl Communicator {
    /// Starts all messages of a round: sends each buffer of `sends` to its member, like
    /// [`start_send`](Self::start_send), and receives into each buffer of `receives` from its member, like
    /// [`start_recv`](Self::start_recv). Returns their handles in the same order.
    ///
    /// If [messages are grouped](Self::groups_messages), none of them is complete before all are, and later messages of
    /// this member wait for them. So members must not wait for each other in a circle: it is enough that all of them
    /// exchange the same rounds in one order, and each round has both ends of its messages.
    pub fn exchange(
        &self,
        sends: Vec<(Site, usize, Arc<Buffer>)>,
        receives: Vec<(Site, usize, Buffer)>,
    ) -> (Vec<PendingCall<()>>, Vec<PendingCall>) {
        let send_count = sends.len();
        let sends = sends.into_iter().map(|(site, to, data)| {
            let op = CommOp::Send { to: self.member.peer(to), count: data.len() };
            (site, op, Operands::Owned { src: Some(data), dst: None })
        });
        let receives = receives.into_iter().map(|(site, from, data)| {
            let op = CommOp::Recv { from: self.member.peer(from), count: data.len() };
            (site, op, Operands::Owned { src: None, dst: Some(data) })
        });
        let now = Instant::now();
        let (mut calls, mut outcomes) = (Vec::new(), Vec::new());
        for (site, op, operands) in sends.chain(receives) {
            let issued = match self.checked_call(&site, op, true, &operands, now) {
                Ok(call) => {
                    self.member.accounting.count_call(call.bytes);
                    let index = call.index;
                    calls.push((call, operands));
                    Ok(index)
                }
                Err(error) => Err(error),
            };
            outcomes.push((site, issued));
        }
        let mut issued = self.group.issue_exchange(calls).into_iter();
        let completed = outcomes.into_iter().map(|(site, outcome)| match outcome {
            Err(error) => (site, Completion::completed(Err(error)), None),
            Ok(index) => {
                let next = issued.next();
                (site, next.expect("an engine completes each message of an exchange"), Some(index))
            }
        });
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        for (position, (site, completion, index)) in completed.enumerate() {
            if position < send_count {
                sent.push(PendingCall::new(completion, &self.member, &site, index));
            } else {
                received.push(PendingCall::new(completion, &self.member, &site, index));
            }
        }
        (sent, received)
    }

    /// Returns true if the engine submits the messages of an [exchange](Self::exchange) as one group, and its groups in
    /// the order of issue.
    pub fn groups_messages(&self) -> bool {
        self.group.groups_messages()
    }
}

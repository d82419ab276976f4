//! One rank's connection with the ranks of neighboring stages.

use std::iter::repeat_n;
use std::sync::Arc;

use crate::schedule::{Message, MessageKind};
use meshwright_backend::{Buffer, CachingAllocator, Category};
use meshwright_comm::trace::Lane;
use meshwright_comm::{Communicator, MessageId, PendingCall, Site};

use super::MessagePart;

/// One rank's connection with the ranks of neighboring stages: starts sends and receives of the buffers of a boundary.
pub(super) struct StageComm {
    pub comm: Arc<Communicator>,
    pub lane: Lane,
    /// Allocates the buffers of received messages.
    pub allocator: Arc<CachingAllocator>,
    /// The rank of each stage.
    pub placement: Vec<usize>,
}

/// The messages of a round in progress.
pub(super) struct StartedRound {
    /// The send of each buffer.
    pub sends: Vec<(Message, PendingCall<()>)>,
    /// The receives of each message.
    pub receives: Vec<Vec<PendingCall>>,
}

/// The pass that messages belong to. A message of one pass never matches a receive of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PassKind {
    Training,
    Evaluation,
}

impl StageComm {
    /// Returns true if the stages of a message are on different ranks.
    pub fn crosses_ranks(&self, message: Message) -> bool {
        self.placement[message.from_stage()] != self.placement[message.to_stage()]
    }

    /// Starts the messages of a round: the sends of all buffers of the first ones, and the receives of the parts of the
    /// others, in order.
    pub fn exchange(
        &self,
        pass: PassKind,
        sends: Vec<(Message, Vec<Arc<Buffer>>)>,
        receives: &[(Message, Vec<MessagePart>)],
    ) -> StartedRound {
        let sent_parts: Vec<Message> =
            sends.iter().flat_map(|(message, buffers)| repeat_n(*message, buffers.len())).collect();
        let outgoing = sends.into_iter().flat_map(|(message, buffers)| {
            let to = self.placement[message.to_stage()];
            let send = move |(part, buffer)| (message_site(pass, message, part), to, buffer);
            buffers.into_iter().enumerate().map(send)
        });
        let incoming = receives.iter().flat_map(|(message, parts)| {
            let from = self.placement[message.from_stage()];
            parts.iter().enumerate().map(move |(part, MessagePart { dtype, len })| {
                let buffer = self.allocator.alloc(*dtype, *len, Category::Communication);
                (message_site(pass, *message, part), from, buffer)
            })
        });
        let (sent, posted) = self.comm.exchange(outgoing.collect(), incoming.collect());
        let mut posted = posted.into_iter();
        let of_message = |(_, parts): &(Message, Vec<MessagePart>)| {
            posted.by_ref().take(parts.len()).collect::<Vec<_>>()
        };
        let sends = sent_parts.into_iter().zip(sent).collect();
        StartedRound { sends, receives: receives.iter().map(of_message).collect() }
    }

    /// Runs `work` inside of a span such as `F 2.5`, of stage 2 and micro-batch 5.
    pub fn run_in_span<T>(
        &self,
        name: &'static str,
        (stage, micro_batch): (usize, usize),
        work: impl FnOnce() -> T,
    ) -> T {
        if !self.lane.is_enabled() {
            return work();
        }
        let subject: Arc<str> = format!("{stage}.{micro_batch}").into();
        let on_device = self.comm.open_compute_span();
        let span = self.lane.open_span((name, &subject));
        let result = work();
        drop(span);
        if let Some(on_device) = on_device {
            on_device.close((name, &subject), "pipeline", Vec::new());
        }
        result
    }
}

/// The site of one buffer of a message.
fn message_site(pass: PassKind, message: Message, part: usize) -> Site {
    let kind = match (pass, message.kind()) {
        (PassKind::Training, MessageKind::Activation) => "activation",
        (PassKind::Training, MessageKind::Gradient) => "gradient",
        (PassKind::Evaluation, MessageKind::Activation) => "evaluated activation",
        (PassKind::Evaluation, MessageKind::Gradient) => "evaluated gradient",
    };
    let (from_stage, to_stage) = (message.from_stage(), message.to_stage());
    let micro_batch = message.micro_batch();
    let site = Site::new(format!("stage {from_stage} -> stage {to_stage}"));
    site.with_message(MessageId { kind, from_stage, to_stage, micro_batch, part })
}

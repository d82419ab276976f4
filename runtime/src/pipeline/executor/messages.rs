//! The messages of one pass over the stages of a rank, by their identity.

use std::collections::HashMap;
use std::sync::Arc;

use crate::backend::Buffer;
use crate::comm::{CommError, Pending};
use crate::schedule::Message;

use super::link::{PassKind, StageLink};
use super::{MessagePart, MessageWait};

/// The buffers that cross boundaries between stages in one pass: received, passed on within the rank, and sent.
pub(super) struct BoundaryMessages<'a> {
    link: &'a StageLink,
    pass: PassKind,
    incoming: HashMap<Message, Incoming>,
    /// Outputs that are not sent yet.
    outgoing: HashMap<Message, Vec<Arc<Buffer>>>,
    /// Messages that are to be started together.
    round: Round,
    /// Sends in progress.
    sends: Vec<Pending<()>>,
    wait: MessageWait,
}

#[derive(Default)]
struct Round {
    sends: Vec<(Message, Vec<Arc<Buffer>>)>,
    receives: Vec<(Message, Vec<MessagePart>)>,
}

/// The input of a computation.
enum Incoming {
    /// The receives of a message from another rank.
    Posted(Vec<Pending>),
    /// The output of another stage of this rank.
    Local(Vec<Arc<Buffer>>),
}

impl<'a> BoundaryMessages<'a> {
    /// Creates a pass without messages.
    pub fn new(link: &'a StageLink, pass: PassKind) -> BoundaryMessages<'a> {
        BoundaryMessages {
            link,
            pass,
            incoming: HashMap::new(),
            outgoing: HashMap::new(),
            round: Round::default(),
            sends: Vec::new(),
            wait: MessageWait::default(),
        }
    }

    /// Adds the receive of a message with these parts to those that [`start_round`](Self::start_round) posts.
    pub fn add_receive(&mut self, message: Message, parts: &[MessagePart]) {
        self.round.receives.push((message, parts.to_vec()));
    }

    /// Returns the buffers of a message, after waiting for them if they come from another rank.
    ///
    /// # Panics
    /// If the message was not posted, nor computed on this rank; the verifier refuses such a schedule.
    pub fn take_input(&mut self, message: Message) -> Result<Vec<Arc<Buffer>>, CommError> {
        let incoming = self.incoming.remove(&message);
        match incoming.expect("a verified schedule posts a receive before its use") {
            Incoming::Local(buffers) => Ok(buffers),
            Incoming::Posted(posted) => {
                let device = self.link.allocator.device();
                let wait_all =
                    || posted.into_iter().map(|part| part.wait().map(Arc::new)).collect();
                let place = (message.to_stage(), message.micro_batch());
                self.wait.measure(device, || self.link.traced("recv", place, wait_all))
            }
        }
    }

    /// Keeps an output, for its send or for the stage of this rank that needs it.
    ///
    /// # Panics
    /// If the buffers do not have the dtypes and lengths of `parts`.
    pub fn put_output(
        &mut self,
        message: Message,
        parts: &[MessagePart],
        buffers: Vec<Arc<Buffer>>,
    ) {
        check_output(message, parts, &buffers);
        if self.link.crosses_ranks(message) {
            self.outgoing.insert(message, buffers);
        } else {
            self.incoming.insert(message, Incoming::Local(buffers));
        }
    }

    /// Adds the send of a message to those that [`start_round`](Self::start_round) starts.
    ///
    /// # Panics
    /// If the message was not computed; the verifier refuses such a schedule.
    pub fn add_send(&mut self, message: Message) {
        let buffers = self.outgoing.remove(&message);
        let buffers = buffers.expect("a verified schedule sends after the computation");
        self.round.sends.push((message, buffers));
    }

    /// Starts the messages that were added since the last call, if any.
    pub fn start_round(&mut self) {
        let Round { sends, receives } = std::mem::take(&mut self.round);
        if sends.is_empty() && receives.is_empty() {
            return;
        }
        let (sent, posted) = self.link.exchange(self.pass, sends, &receives);
        self.sends.extend(sent);
        for ((message, _), posted) in receives.into_iter().zip(posted) {
            self.incoming.insert(message, Incoming::Posted(posted));
        }
    }

    /// Drops the handles of completed sends, and with them their buffers.
    ///
    /// # Errors
    /// If a send has failed.
    pub fn release_sent(&mut self) -> Result<(), CommError> {
        let sends = std::mem::take(&mut self.sends).into_iter();
        let (complete, in_progress): (Vec<_>, _) = sends.partition(Pending::is_complete);
        self.sends = in_progress;
        complete.into_iter().try_for_each(Pending::wait)
    }

    /// Waits for all sends, so that a failure belongs to this pass. Returns the time waited in the whole pass.
    pub fn finish(mut self) -> Result<MessageWait, CommError> {
        self.release_sent()?;
        let (device, sends) = (self.link.allocator.device(), self.sends);
        self.wait.measure(device, || sends.into_iter().try_for_each(Pending::wait))?;
        Ok(self.wait)
    }
}

/// Requires the static dtypes and lengths of a boundary: shapes are not sent.
fn check_output(message: Message, parts: &[MessagePart], buffers: &[Arc<Buffer>]) {
    let of = |buffer: &Arc<Buffer>| MessagePart { dtype: buffer.dtype(), len: buffer.len() };
    let given: Vec<MessagePart> = buffers.iter().map(of).collect();
    if given != parts {
        let list = |parts: &[MessagePart]| {
            let texts: Vec<String> = parts.iter().map(ToString::to_string).collect();
            format!("[{}]", texts.join(", "))
        };
        panic!(
            "the {:?} of micro-batch {} from stage {} to stage {} is {}, but this boundary has {}",
            message.kind(),
            message.micro_batch(),
            message.from_stage(),
            message.to_stage(),
            list(&given),
            list(parts),
        );
    }
}

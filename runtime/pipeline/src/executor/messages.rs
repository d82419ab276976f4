//! The messages of one pass over the stages of a rank, by their identity.

use std::collections::HashMap;
use std::sync::Arc;

use crate::schedule::{Message, Receipts};
use meshwright_backend::Buffer;
use meshwright_comm::{CommError, PendingCall};

use super::stage_comm::{PassKind, StageComm};
use super::{MessagePart, MessageWait};

/// The buffers that cross boundaries between stages in one pass: received, passed on within the rank, and sent.
pub(super) struct BoundaryMessages<'a> {
    stage_comm: &'a StageComm,
    pass: PassKind,
    incoming: HashMap<Message, Incoming>,
    /// Outputs that are not sent yet.
    outgoing: HashMap<Message, Vec<Arc<Buffer>>>,
    /// Messages that are to be started together.
    round: Round,
    /// Sends in progress.
    sends: Vec<(Message, PendingCall<()>)>,
    /// Capture of a CUDA graph: the host cannot see that a send is over.
    receipts: Option<Receipts>,
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
    Posted(Vec<PendingCall>),
    /// The output of another stage of this rank.
    Local(Vec<Arc<Buffer>>),
}

impl<'a> BoundaryMessages<'a> {
    /// Creates a pass without messages.
    pub fn new(stage_comm: &'a StageComm, pass: PassKind) -> BoundaryMessages<'a> {
        BoundaryMessages {
            stage_comm,
            pass,
            incoming: HashMap::new(),
            outgoing: HashMap::new(),
            round: Round::default(),
            sends: Vec::new(),
            receipts: None,
            wait: MessageWait::default(),
        }
    }

    /// Releases the buffers of sends by these receipts only: their messages have arrived, so the device does not wait
    /// for their ends.
    pub fn with_receipts(self, receipts: Receipts) -> BoundaryMessages<'a> {
        BoundaryMessages { receipts: Some(receipts), ..self }
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
                let device = self.stage_comm.allocator.device();
                let wait_all = || {
                    let parts = posted.into_iter().map(|part| part.wait().map(Arc::new));
                    parts.collect::<Result<Vec<_>, CommError>>()
                };
                let place = (message.to_stage(), message.micro_batch());
                let input = self
                    .wait
                    .measure(device, || self.stage_comm.run_in_span("recv", place, wait_all))?;
                self.release_used(message)?;
                Ok(input)
            }
        }
    }

    /// Drops the handles of the sends that the receiver had used before it sent `answer`.
    fn release_used(&mut self, answer: Message) -> Result<(), CommError> {
        let used = self.receipts.as_mut().and_then(|receipts| receipts.remove(&answer));
        let used = used.unwrap_or_default();
        self.wait_for_sends(|message, _| used.contains(&message))
    }

    /// Waits for the sends that `is_over` chooses.
    fn wait_for_sends(
        &mut self,
        is_over: impl Fn(Message, &PendingCall<()>) -> bool,
    ) -> Result<(), CommError> {
        let sends = std::mem::take(&mut self.sends).into_iter();
        let (over, in_progress): (Vec<_>, _) =
            sends.partition(|(message, send)| is_over(*message, send));
        self.sends = in_progress;
        over.into_iter().try_for_each(|(_, send)| send.wait())
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
        if self.stage_comm.crosses_ranks(message) {
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
        let started = self.stage_comm.exchange(self.pass, sends, &receives);
        self.sends.extend(started.sends);
        for ((message, _), posted) in receives.into_iter().zip(started.receives) {
            self.incoming.insert(message, Incoming::Posted(posted));
        }
    }

    /// Drops the handles of completed sends, and with them their buffers. Does nothing if there are
    /// [receipts](Self::with_receipts).
    ///
    /// # Errors
    /// If a send has failed.
    pub fn release_sent(&mut self) -> Result<(), CommError> {
        match self.receipts {
            Some(_) => Ok(()),
            None => self.wait_for_sends(|_, send| send.is_complete()),
        }
    }

    /// Waits for all sends, so that a failure belongs to this pass. Returns the time waited in the whole pass.
    pub fn finish_messages(mut self) -> Result<MessageWait, CommError> {
        self.release_sent()?;
        let (device, sends) = (self.stage_comm.allocator.device(), self.sends);
        self.wait.measure(device, || sends.into_iter().try_for_each(|(_, send)| send.wait()))?;
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

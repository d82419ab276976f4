//! The actions of a pipeline schedule, in the notation of PyTorch's CSV files.

use std::fmt;
use std::str::FromStr;

/// The computation of one stage on one micro-batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// The forward pass.
    Forward,
    /// The whole backward pass.
    Backward,
    /// The part of the backward pass that gives the gradient of the stage's input.
    BackwardInput,
    /// The part of the backward pass that gives the gradients of weights.
    BackwardWeight,
}

impl Work {
    /// The letter in PyTorch's notation: F, B, I or W.
    pub fn letter(self) -> &'static str {
        match self {
            Work::Forward => "F",
            Work::Backward => "B",
            Work::BackwardInput => "I",
            Work::BackwardWeight => "W",
        }
    }

    /// Returns true if the gradient of the stage's input is computed.
    pub fn gives_input_gradient(self) -> bool {
        matches!(self, Work::Backward | Work::BackwardInput)
    }

    /// Returns true if the gradients of weights are computed.
    pub fn gives_weight_gradients(self) -> bool {
        matches!(self, Work::Backward | Work::BackwardWeight)
    }
}

/// One computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Compute {
    /// The kind of computation.
    pub work: Work,
    /// The stage that is computed.
    pub stage: usize,
    /// The micro-batch that it is computed on.
    pub micro_batch: usize,
}

impl Compute {
    /// Creates the action of `work` for a stage and a micro-batch.
    pub fn new(work: Work, stage: usize, micro_batch: usize) -> Compute {
        Compute { work, stage, micro_batch }
    }

    /// The message that this needs from a neighboring stage, if any, in a pipeline of `stages`.
    pub fn input_message(self, stages: usize) -> Option<Message> {
        let Compute { work, stage, micro_batch } = self;
        match work {
            Work::Forward => {
                stage.checked_sub(1).map(|from| Message::activation(from, micro_batch))
            }
            _ if work.gives_input_gradient() && stage + 1 < stages => {
                Some(Message::gradient(stage + 1, micro_batch))
            }
            _ => None,
        }
    }

    /// The message that this makes for a neighboring stage, if any, in a pipeline of `stages`.
    pub fn output_message(self, stages: usize) -> Option<Message> {
        let Compute { work, stage, micro_batch } = self;
        match work {
            Work::Forward => (stage + 1 < stages).then(|| Message::activation(stage, micro_batch)),
            _ if work.gives_input_gradient() && stage > 0 => {
                Some(Message::gradient(stage, micro_batch))
            }
            _ => None,
        }
    }
}

/// The content of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageKind {
    /// The output of a stage, for the next one.
    Activation,
    /// The gradient of a stage's input, for the previous one.
    Gradient,
}

/// A message from one stage to a neighboring one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Message {
    kind: MessageKind,
    from: usize,
    micro_batch: usize,
}

impl Message {
    /// Creates the message with the output of stage `from`.
    pub fn activation(from: usize, micro_batch: usize) -> Message {
        Message { kind: MessageKind::Activation, from, micro_batch }
    }

    /// Creates the message with the gradient of the input of stage `from`, which is above 0.
    ///
    /// # Panics
    /// If `from` is 0: the first stage has no previous one.
    pub fn gradient(from: usize, micro_batch: usize) -> Message {
        assert!(from > 0, "the first stage sends no gradient");
        Message { kind: MessageKind::Gradient, from, micro_batch }
    }

    /// The content.
    pub fn kind(self) -> MessageKind {
        self.kind
    }

    /// The sending stage.
    pub fn from_stage(self) -> usize {
        self.from
    }

    /// The receiving stage.
    pub fn to_stage(self) -> usize {
        match self.kind {
            MessageKind::Activation => self.from + 1,
            MessageKind::Gradient => self.from - 1,
        }
    }

    /// The micro-batch.
    pub fn micro_batch(self) -> usize {
        self.micro_batch
    }

    fn letter(self) -> char {
        match self.kind {
            MessageKind::Activation => 'F',
            MessageKind::Gradient => 'B',
        }
    }
}

/// One action of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// A computation.
    Compute(Compute),
    /// A forward and a backward pass that may overlap; here they run one after the other.
    Overlap([Compute; 2]),
    /// Sends a message, without waiting for the receiver.
    Send(Message),
    /// Posts the receive of a message; the computation that needs the message waits for it.
    Recv(Message),
    /// Gathers the parameters of a stage.
    Unshard(usize),
    /// Frees the gathered parameters of a stage.
    Reshard(usize),
    /// Reduces the gradients of a stage over data-parallel ranks.
    ReduceGrad(usize),
}

impl Action {
    /// The computations of this action, in order.
    pub fn computes(&self) -> &[Compute] {
        match self {
            Action::Compute(compute) => std::slice::from_ref(compute),
            Action::Overlap(both) => both,
            _ => &[],
        }
    }

    /// The message that this sends or receives, if any.
    pub fn message(&self) -> Option<Message> {
        match self {
            Action::Send(message) | Action::Recv(message) => Some(*message),
            _ => None,
        }
    }
}

impl From<Compute> for Action {
    fn from(compute: Compute) -> Action {
        Action::Compute(compute)
    }
}

impl fmt::Display for Compute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.stage, self.work.letter(), self.micro_batch)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Compute(compute) => compute.fmt(f),
            Action::Overlap([first, second]) => write!(f, "({first};{second})OVERLAP_F_B"),
            Action::Send(message) => {
                write!(f, "{}SEND_{}{}", message.from, message.letter(), message.micro_batch)
            }
            Action::Recv(message) => {
                write!(f, "{}RECV_{}{}", message.to_stage(), message.letter(), message.micro_batch)
            }
            Action::Unshard(stage) => write!(f, "{stage}UNSHARD"),
            Action::Reshard(stage) => write!(f, "{stage}RESHARD"),
            Action::ReduceGrad(stage) => write!(f, "{stage}REDUCE_GRAD"),
        }
    }
}

/// Text that is not an action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not an action: write a stage, one of F, B, I, W, SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD, RESHARD and \
     REDUCE_GRAD, and, except for the last three, a micro-batch, such as `2F0`; or `(0F1;3B0)OVERLAP_F_B`"
)]
pub struct ParseActionError(String);

impl FromStr for Compute {
    type Err = ParseActionError;

    fn from_str(text: &str) -> Result<Compute, ParseActionError> {
        match text.parse()? {
            Action::Compute(compute) => Ok(compute),
            _ => Err(ParseActionError(text.to_owned())),
        }
    }
}

impl FromStr for Action {
    type Err = ParseActionError;

    fn from_str(text: &str) -> Result<Action, ParseActionError> {
        let refused = || ParseActionError(text.to_owned());
        let text = text.trim();
        if let Some(rest) = text.strip_prefix('(') {
            let both = rest.strip_suffix(")OVERLAP_F_B").and_then(|both| both.split_once(';'));
            let (first, second) = both.ok_or_else(refused)?;
            return Ok(Action::Overlap([first.parse()?, second.parse()?]));
        }
        let (stage, rest) = split_number(text).ok_or_else(refused)?;
        match rest {
            "UNSHARD" => return Ok(Action::Unshard(stage)),
            "RESHARD" => return Ok(Action::Reshard(stage)),
            "REDUCE_GRAD" => return Ok(Action::ReduceGrad(stage)),
            _ => {}
        }
        let name_len = rest.find(|c: char| c.is_ascii_digit()).ok_or_else(refused)?;
        let (name, number) = rest.split_at(name_len);
        let micro_batch = match split_number(number) {
            Some((micro_batch, "")) => micro_batch,
            _ => return Err(refused()),
        };
        let compute = |work| Ok(Compute::new(work, stage, micro_batch).into());
        let neighbor = |stage: Option<usize>| stage.ok_or_else(refused);
        match name {
            "F" => compute(Work::Forward),
            "B" => compute(Work::Backward),
            "I" => compute(Work::BackwardInput),
            "W" => compute(Work::BackwardWeight),
            "SEND_F" => Ok(Action::Send(Message::activation(stage, micro_batch))),
            "RECV_F" => {
                let from = neighbor(stage.checked_sub(1))?;
                Ok(Action::Recv(Message::activation(from, micro_batch)))
            }
            "SEND_B" if stage > 0 => Ok(Action::Send(Message::gradient(stage, micro_batch))),
            "RECV_B" => {
                let from = neighbor(stage.checked_add(1))?;
                Ok(Action::Recv(Message::gradient(from, micro_batch)))
            }
            _ => Err(refused()),
        }
    }
}

/// The number that a text begins with, and the rest.
fn split_number(text: &str) -> Option<(usize, &str)> {
    let len = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(len);
    Some((number.parse().ok()?, rest))
}

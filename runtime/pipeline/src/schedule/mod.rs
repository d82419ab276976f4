//! Pipeline schedules as data: the order of the computations of each rank, each of one stage on one micro-batch.
//!
//! A [`Schedule`] comes from a [generator](ScheduleKind::generate) or from a CSV file in PyTorch's notation ([`csv`]).
//! [`lower_schedule`] adds the messages between ranks, [`verify`] refuses a schedule that is incomplete, exchanges
//! messages or cannot end, and [`simulate`] gives its times, from which [`draw`] makes pictures.
//!
//! A *stage* is a consecutive piece of the model; a rank that holds several holds one *chunk* per stage. Nothing here
//! depends on tensors or on communication.

mod action;
pub mod csv;
pub mod draw;
mod generate;
mod kind;
mod lockstep;
mod lower;
mod peaks;
mod receipts;
mod simulate;
mod split;
#[cfg(test)]
pub(crate) mod tests;
mod verify;

pub use action::{Action, Compute, Message, MessageKind, ParseActionError, Work};
pub use csv::CsvError;
pub use kind::{ScheduleError, ScheduleKind};
pub use lockstep::{Lockstep, lockstep};
pub use lower::{LOOKAHEAD, lower_schedule};
pub use peaks::{Peak, peaks};
pub(crate) use receipts::Receipts;
pub use simulate::{CostModel, Costs, ScheduledSpan, Simulation, StageCosts, Stuck, simulate};
pub use verify::{Finding, Verified, verify};

/// The actions of each rank of a pipeline, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// The actions of each rank.
    pub ranks: Vec<Vec<Action>>,
    /// The rank of each stage.
    pub placement: Vec<usize>,
    /// The number of micro-batches of a step.
    pub micro_batches: usize,
    /// The name of the schedule; none for one from a file, whose order is free.
    pub kind: Option<ScheduleKind>,
}

impl Schedule {
    /// The number of stages.
    pub fn stages(&self) -> usize {
        self.placement.len()
    }

    /// Returns true if the messages between ranks are among the actions.
    pub fn is_lowered(&self) -> bool {
        let is_message = |action: &Action| matches!(action, Action::Send(_) | Action::Recv(_));
        self.ranks.iter().flatten().any(is_message)
    }

    /// The message that a computation needs from another rank, if any.
    fn input_message(&self, compute: Compute) -> Option<Message> {
        let message = compute.input_message(self.stages())?;
        self.crosses_ranks(message).then_some(message)
    }

    /// The message that a computation makes for another rank, if any.
    fn output_message(&self, compute: Compute) -> Option<Message> {
        let message = compute.output_message(self.stages())?;
        self.crosses_ranks(message).then_some(message)
    }

    fn crosses_ranks(&self, message: Message) -> bool {
        self.placement[message.from_stage()] != self.placement[message.to_stage()]
    }

    /// The sending and the receiving rank of a message.
    pub fn message_ranks(&self, message: Message) -> (usize, usize) {
        (self.placement[message.from_stage()], self.placement[message.to_stage()])
    }

    /// Returns the channels of the schedule, as pairs of sender and receiver, in ascending order.
    pub fn message_pairs(&self) -> Vec<(usize, usize)> {
        let computes = self.ranks.iter().flatten().flat_map(|action| action.computes());
        let messages = computes.filter_map(|compute| self.output_message(*compute));
        let mut channels: Vec<_> = messages.map(|message| self.message_ranks(message)).collect();
        channels.sort_unstable();
        channels.dedup();
        channels
    }
}

//! The executor: one loop over the actions of a rank.

use std::cell::Cell;
use std::sync::Arc;

use crate::schedule::{Action, Compute, Message, Schedule, Verified, Work};
use meshwright_backend::{Buffer, CachingAllocator};
use meshwright_comm::RankComms;
use meshwright_core::__internal as scope;
use meshwright_core::layout::{AxisId, AxisSet};

use super::messages::BoundaryMessages;
use super::stage_comm::{PassKind, StageComm};
use super::{ExecutorError, MessagePart, MessageParts, MessageWait, StageWork};

/// Runs one rank's part of a pipeline schedule.
///
/// - Receives are posted where the schedule has them, which is the order of the sender on each channel; on devices,
///   without lookahead in the first steps. If the engine groups messages, they are exchanged in
///   [rounds](crate::schedule::Lockstep) instead. Their buffers are allocated in the category
///   [`Communication`](meshwright_backend::Category::Communication).
/// - A computation waits for its own input only. The output is sent without waiting for the receiver, and its buffers
///   are released as soon as they are sent.
/// - Every message carries a [`MessageId`](meshwright_comm::MessageId), which the receive compares, if the engine can.
pub struct PipelineExecutor {
    pub(super) stage_comm: StageComm,
    schedule: Arc<Verified>,
    /// True if messages are exchanged in rounds.
    is_in_rounds: bool,
    steps: Cell<usize>,
}

/// Steps of a run on devices without lookahead.
///
/// In the first ones the host may wait for the device: to load a kernel, or to allocate memory. If the device had a
/// receive posted whose sender waits for work that this host has yet to submit, none of them could continue. Messages
/// in rounds never wait for such work. A dry run has lookahead from its first step on, as its steps stand for all.
const STEPS_WITHOUT_LOOKAHEAD: usize = 2;

impl PipelineExecutor {
    /// Creates the executor of a rank. The ranks along the axis `pp` are the ranks of the schedule.
    ///
    /// `allocator` allocates the memory of stages.
    ///
    /// # Errors
    /// If the schedule is for another number of ranks.
    pub fn new(
        comms: &RankComms,
        allocator: &Arc<CachingAllocator>,
        schedule: &Arc<Verified>,
    ) -> Result<PipelineExecutor, ExecutorError> {
        let comm = comms.group(AxisSet::of(AxisId::Pp));
        let is_in_rounds = comm.groups_messages();
        let program = schedule.lowered();
        if program.ranks.len() != comm.size() {
            let (schedule, mesh) = (program.ranks.len(), comm.size());
            return Err(ExecutorError::Ranks { schedule, mesh });
        }
        let (lane, allocator) = (comms.lane().clone(), Arc::clone(allocator));
        let placement = program.placement.clone();
        let stage_comm = StageComm { comm, lane, allocator, placement };
        let (schedule, steps) = (Arc::clone(schedule), Cell::new(0));
        Ok(PipelineExecutor { stage_comm, schedule, is_in_rounds, steps })
    }

    /// The schedule with its messages: in rounds, if the engine [groups
    /// them](meshwright_comm::Communicator::groups_messages).
    pub fn program(&self) -> &Schedule {
        if self.is_in_rounds { self.schedule.lockstep().program() } else { self.schedule.lowered() }
    }

    /// Returns true if messages are exchanged in rounds, which no order of the engine's own can block.
    pub(crate) fn is_in_rounds(&self) -> bool {
        self.is_in_rounds
    }

    /// The coordinate of this rank on the axis `pp`.
    pub fn rank(&self) -> usize {
        self.stage_comm.comm.rank()
    }

    /// Compares the schedules of all ranks, and the buffers at both ends of each channel. All ranks of the
    /// axis `pp` call this before their first step, and before their first evaluation.
    ///
    /// `parts` returns the buffers of a message of this rank's stages, in the order of sending. So messages of equal
    /// size are not confused with an engine that cannot compare calls either, such as NCCL: it matches them in the
    /// order of issue, which is verified for each channel.
    ///
    /// # Errors
    /// On all ranks alike, if ranks have different schedules, or different buffers for one boundary.
    pub fn agree_on_parts(
        &self,
        parts: impl Fn(Message) -> Vec<MessagePart>,
    ) -> Result<MessageParts, ExecutorError> {
        MessageParts::agree_over_ranks(&self.stage_comm.comm, self.program(), parts)
    }

    /// Runs the forward and backward passes of all micro-batches on this rank's stages. Returns the time waited for
    /// messages. `parts` are the buffers of the messages, by [`agree_on_parts`](Self::agree_on_parts).
    ///
    /// # Errors
    /// The first error of a computation or of a message. All sends of the step are waited for.
    ///
    /// # Panics
    /// If a stage returns buffers of other dtypes or lengths than its boundary has, or the last stage an output.
    pub fn run_step<W: StageWork>(
        &self,
        parts: &MessageParts,
        work: &mut W,
    ) -> Result<MessageWait, W::Error> {
        let mut messages = BoundaryMessages::new(&self.stage_comm, PassKind::Training);
        let is_captured =
            self.stage_comm.allocator.device().is_some_and(|device| device.is_capturing());
        if is_captured {
            messages = messages.with_receipts(self.program().receipts(self.rank()));
        }
        let mut actions = self.next_program().ranks[self.rank()].iter().peekable();
        while let Some(action) = actions.next() {
            match action {
                Action::Recv(message) => messages.add_receive(*message, &parts.0[message]),
                Action::Send(message) => messages.add_send(*message),
                Action::Unshard(stage) => work.unshard(*stage)?,
                Action::Reshard(stage) => work.reshard(*stage)?,
                Action::ReduceGrad(stage) => work.reduce_gradients(*stage)?,
                Action::Compute(_) | Action::Overlap(_) => {
                    for compute in action.computes() {
                        self.run_compute(*compute, (parts, &mut messages), work)?;
                    }
                }
            }
            let are_in_one_round = |next: &&Action| {
                self.is_in_rounds && self.schedule.lockstep().are_in_one_round(action, next)
            };
            if !actions.peek().is_some_and(are_in_one_round) {
                messages.start_round();
                messages.release_sent()?;
            }
        }
        Ok(messages.finish_messages()?)
    }

    /// Counts a step, and returns its program.
    fn next_program(&self) -> &Schedule {
        let step = self.steps.get();
        self.steps.set(step + 1);
        let warms_up = self.stage_comm.allocator.device().is_some()
            && step < STEPS_WITHOUT_LOOKAHEAD
            && !self.is_in_rounds
            && !self.stage_comm.comm.is_dry_run();
        if warms_up { self.schedule.without_lookahead() } else { self.program() }
    }

    fn run_compute<W: StageWork>(
        &self,
        compute: Compute,
        (parts, messages): (&MessageParts, &mut BoundaryMessages<'_>),
        work: &mut W,
    ) -> Result<(), W::Error> {
        let stages = self.program().stages();
        let input = match compute.input_message(stages) {
            Some(message) => messages.take_input(message)?,
            None => Vec::new(),
        };
        let Compute { work: kind, stage, micro_batch } = compute;
        let run = || match kind {
            Work::Forward => work.run_forward(stage, micro_batch, input),
            Work::Backward => work.run_backward(stage, micro_batch, input),
            Work::BackwardInput => work.run_backward_input(stage, micro_batch, input),
            Work::BackwardWeight => {
                work.run_backward_weight(stage, micro_batch).map(|()| Vec::new())
            }
        };
        let action = scope::RunningAction { work: kind.letter(), stage, micro_batch };
        let run = || scope::run_action(action, run);
        let output = self.stage_comm.run_in_span(kind.letter(), (stage, micro_batch), run)?;
        match compute.output_message(stages) {
            Some(message) => messages.put_output(message, &parts.0[&message], output),
            None => check_no_output(compute, &output),
        }
        Ok(())
    }
}

fn check_no_output(compute: Compute, output: &[Arc<Buffer>]) {
    let count = output.len();
    assert!(count == 0, "`{compute}` returns {count} buffers, but no other stage needs its output");
}

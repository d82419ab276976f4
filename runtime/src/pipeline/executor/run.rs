//! The executor: one loop over the actions of a rank.

use std::collections::HashMap;
use std::sync::Arc;

use crate::backend::{Buffer, CachingAllocator};
use crate::comm::RankComms;
use crate::layout::{AxisId, AxisSet};
use crate::schedule::{Action, Compute, Message, Schedule, Work, verify};

use super::agreement;
use super::link::{PassKind, StageLink};
use super::messages::BoundaryMessages;
use super::{ExecutorError, MessagePart, MessageWait, StageWork};

/// Runs one rank's part of a pipeline schedule.
///
/// - Receives are posted where the schedule has them, which is the order of the sender on each directed edge between two
///   ranks. Their buffers are allocated in the category [`Communication`](crate::backend::Category::Communication).
/// - A computation waits for its own input only. The output is sent without waiting for the receiver, and its buffers are
///   released as soon as they are sent.
/// - Every message carries a [`MessageId`](crate::comm::MessageId), which the receive compares, if the engine can.
pub struct PipelineExecutor {
    pub(super) link: StageLink,
    /// The schedule with its messages.
    program: Schedule,
    /// The buffers of the messages that this rank sends, receives or passes on.
    parts: HashMap<Message, Vec<MessagePart>>,
}

impl PipelineExecutor {
    /// Creates the executor of a rank. The ranks along the axis `pp` are those of the schedule; all of them call this.
    ///
    /// A schedule without messages is [lowered](crate::schedule::lower()) with the default lookahead; one with messages is
    /// run as it is. `parts` returns the buffers of a message of this rank's stages, in the order in which they are sent.
    /// `allocator` is of the memory in which stages compute.
    ///
    /// # Errors
    /// Before any stage is computed: if the verifier refuses the schedule, and, on all ranks alike, if ranks have different
    /// schedules, or different buffers for one boundary. So messages of equal size are not confused with an engine that
    /// cannot compare calls either, such as NCCL: it matches them in the order of issue, which is verified for each edge.
    pub fn new(
        comms: &RankComms,
        allocator: &Arc<CachingAllocator>,
        schedule: &Schedule,
        parts: impl Fn(Message) -> Vec<MessagePart>,
    ) -> Result<PipelineExecutor, ExecutorError> {
        let comm = comms.group(AxisSet::of(AxisId::Pp));
        if schedule.ranks.len() != comm.size() {
            let (schedule, mesh) = (schedule.ranks.len(), comm.size());
            return Err(ExecutorError::Ranks { schedule, mesh });
        }
        // A named schedule may be lowered with another lookahead than that of its generator.
        let verifies_name = !schedule.is_lowered();
        let kind = schedule.kind.filter(|_| verifies_name);
        let verified = verify(&Schedule { kind, ..schedule.clone() });
        let program = verified.map_err(ExecutorError::Schedule)?.lowered;
        let own = program.ranks[comm.rank()].iter().flat_map(|action| action.computes());
        let messages = own.flat_map(|compute| {
            let stages = program.stages();
            [compute.input_message(stages), compute.output_message(stages)]
        });
        let parts: HashMap<_, _> =
            messages.flatten().map(|message| (message, parts(message))).collect();
        agreement::check(&comm, &program, &parts)?;
        let (lane, allocator) = (comms.lane().clone(), Arc::clone(allocator));
        let placement = program.placement.clone();
        let link = StageLink { comm, lane, allocator, placement };
        Ok(PipelineExecutor { link, program, parts })
    }

    /// The schedule with its messages.
    pub fn program(&self) -> &Schedule {
        &self.program
    }

    /// The coordinate of this rank on the axis `pp`.
    pub fn rank(&self) -> usize {
        self.link.comm.rank()
    }

    /// Runs the forward and backward passes of all micro-batches on this rank's stages. Returns the time waited for
    /// messages.
    ///
    /// # Errors
    /// The first error of a computation or of a message. All sends of the step are waited for.
    ///
    /// # Panics
    /// If a stage returns buffers of other dtypes or lengths than its boundary has, or the last stage an output.
    pub fn run_step<W: StageWork>(&self, work: &mut W) -> Result<MessageWait, W::Error> {
        let mut messages = BoundaryMessages::new(&self.link, PassKind::Training);
        for action in &self.program.ranks[self.rank()] {
            match action {
                Action::Recv(message) => messages.post_receive(*message, &self.parts[message]),
                Action::Send(message) => messages.start_send(*message),
                Action::Unshard(stage) => work.unshard(*stage)?,
                Action::Reshard(stage) => work.reshard(*stage)?,
                Action::ReduceGrad(stage) => work.reduce_gradients(*stage)?,
                Action::Compute(_) | Action::Overlap(_) => {
                    for compute in action.computes() {
                        self.run_compute(*compute, &mut messages, work)?;
                    }
                }
            }
            messages.release_sent()?;
        }
        Ok(messages.finish()?)
    }

    fn run_compute<W: StageWork>(
        &self,
        compute: Compute,
        messages: &mut BoundaryMessages<'_>,
        work: &mut W,
    ) -> Result<(), W::Error> {
        let stages = self.program.stages();
        let input = match compute.input_message(stages) {
            Some(message) => messages.take_input(message)?,
            None => Vec::new(),
        };
        let Compute { work: kind, stage, micro_batch } = compute;
        let output = self.link.traced(kind.letter(), (stage, micro_batch), || match kind {
            Work::Forward => work.run_forward(stage, micro_batch, input),
            Work::Backward => work.run_backward(stage, micro_batch, input),
            Work::BackwardInput => work.run_backward_input(stage, micro_batch, input),
            Work::BackwardWeight => {
                work.run_backward_weight(stage, micro_batch).map(|()| Vec::new())
            }
        })?;
        match compute.output_message(stages) {
            Some(message) => messages.put_output(message, &self.parts[&message], output),
            None => check_no_output(compute, &output),
        }
        Ok(())
    }
}

fn check_no_output(compute: Compute, output: &[Arc<Buffer>]) {
    let count = output.len();
    assert!(count == 0, "`{compute}` returns {count} buffers, but no other stage needs its output");
}

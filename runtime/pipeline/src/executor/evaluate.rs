//! The forward pass of one input over all stages, without a backward pass.

use std::sync::Arc;

use crate::schedule::{Compute, Message, Work};
use meshwright_backend::Buffer;
use meshwright_comm::CommError;

use super::messages::BoundaryMessages;
use super::stage_comm::PassKind;
use super::{MessagePart, PipelineExecutor};

impl PipelineExecutor {
    /// Runs the forward pass of one input, for sampling or validation: this rank's stages in ascending order, with
    /// messages between ranks. All ranks of the axis `pp` call this. Returns the output of the last stage on its rank,
    /// and `None` on the others.
    ///
    /// `parts` returns the buffers of a message, which may differ from a training step's; all ranks must agree on them.
    /// `forward` computes a stage from the output of the previous one, the first stage from no buffers.
    ///
    /// # Errors
    /// The first error of `forward` or of a message.
    ///
    /// # Panics
    /// If a stage but the last returns buffers of other dtypes or lengths than its boundary has.
    pub fn evaluate<E: From<CommError>>(
        &self,
        parts: impl Fn(Message) -> Vec<MessagePart>,
        mut forward: impl FnMut(usize, Vec<Arc<Buffer>>) -> Result<Vec<Arc<Buffer>>, E>,
    ) -> Result<Option<Vec<Arc<Buffer>>>, E> {
        let (stage_comm, stages) = (&self.stage_comm, self.program().stages());
        let mut messages = BoundaryMessages::new(stage_comm, PassKind::Evaluation);
        let mut last_output = None;
        for stage in (0..stages).filter(|stage| stage_comm.placement[*stage] == self.rank()) {
            let compute = Compute::new(Work::Forward, stage, 0);
            let input = match compute.input_message(stages) {
                Some(message) => {
                    if stage_comm.crosses_ranks(message) {
                        messages.add_receive(message, &parts(message));
                        messages.start_round();
                    }
                    messages.take_input(message)?
                }
                None => Vec::new(),
            };
            let output = stage_comm.run_in_span("F", (stage, 0), || forward(stage, input))?;
            match compute.output_message(stages) {
                Some(message) => {
                    messages.put_output(message, &parts(message), output);
                    if stage_comm.crosses_ranks(message) {
                        messages.add_send(message);
                        messages.start_round();
                    }
                }
                None => last_output = Some(output),
            }
            messages.release_sent()?;
        }
        messages.finish_messages()?;
        Ok(last_output)
    }
}

//! The computations of a rank's stages, as the executor needs them.

use std::fmt;
use std::sync::Arc;

use meshwright_backend::{Buffer, DType};
use meshwright_comm::CommError;

/// The computations of the stages of one rank.
///
/// The executor calls the methods in the order of the schedule, each for one stage and one micro-batch. An input or
/// output is the list of buffers that cross a boundary between two stages; the first stage has no input, and the last
/// stage, whose backward pass begins with the loss, no output. Between stages of one rank the same buffers are passed
/// on.
///
/// # Errors
/// An error of any method ends the step of this rank. The rank then has to leave the mesh, as it does when the body of
/// [`launch`](meshwright_comm::launch) returns the error, which fails the steps of all other ranks.
pub trait StageWork {
    /// The error of a computation or of a message.
    type Error: From<CommError>;

    /// Runs the forward pass of a stage, and keeps the values that its backward pass needs.
    fn run_forward(
        &mut self,
        stage: usize,
        micro_batch: usize,
        input: Vec<Arc<Buffer>>,
    ) -> Result<Vec<Arc<Buffer>>, Self::Error>;

    /// Runs the whole backward pass of a stage, and returns the gradients of its input.
    fn run_backward(
        &mut self,
        stage: usize,
        micro_batch: usize,
        output_gradients: Vec<Arc<Buffer>>,
    ) -> Result<Vec<Arc<Buffer>>, Self::Error>;

    /// Runs the part of the backward pass that computes the gradients of the input, and returns these.
    fn run_backward_input(
        &mut self,
        stage: usize,
        micro_batch: usize,
        output_gradients: Vec<Arc<Buffer>>,
    ) -> Result<Vec<Arc<Buffer>>, Self::Error>;

    /// Runs the part of the backward pass that computes the gradients of weights.
    fn run_backward_weight(&mut self, stage: usize, micro_batch: usize) -> Result<(), Self::Error>;

    /// Gathers the sharded parameters of a stage, which stay gathered until [`reshard`](Self::reshard).
    fn unshard(&mut self, stage: usize) -> Result<(), Self::Error>;

    /// Frees the gathered parameters of a stage.
    fn reshard(&mut self, stage: usize) -> Result<(), Self::Error>;

    /// Reduces the gradients of a stage over data-parallel ranks, after its last weight gradients.
    fn reduce_gradients(&mut self, stage: usize) -> Result<(), Self::Error>;
}

/// The dtype and length of one of the buffers that cross a boundary between stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessagePart {
    /// Element type.
    pub dtype: DType,
    /// Number of elements.
    pub len: usize,
}

/// `f32 x 16`.
impl fmt::Display for MessagePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.dtype, self.len)
    }
}

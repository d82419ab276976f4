//! Tasks: what a model is trained for.

mod any_task;
mod flags;
mod list;
mod next_token;
mod rows;
mod setup;

use crate::data::{Example, RowStreams, RowWriter};
use crate::layout::Dims;
use crate::nn::{Layer, Module};
use crate::tensor::{Loss, SegmentData};
use meshwright_core::__internal::{CapturedInput, InputCapture};

use super::FamilyModel;
use super::continuation::{Continuation, ContinuedModel};

pub use any_task::AnyTask;
pub use flags::BothFlags;
pub use list::{TaskList, WithTask, task_entry};
pub use next_token::NextToken;
pub use rows::Rows;
pub use setup::TaskSetup;

/// A task that a model is trained for: the rows that it makes of examples, the input of the model, and the loss.
///
/// [`TaskTrainer`](super::TaskTrainer) trains it with all meshes and settings of a language model, whose task is
/// [`NextToken`].
///
/// ```
/// use meshwright::data::{Example, RowWriter, RowStreams};
/// use meshwright::models::llama::{self, Llama, LlamaConfig};
/// use meshwright::prelude::*;
/// use meshwright::train::{Rows, Task, TaskSetup};
///
/// type Ids = Tokens<(llama::Batch, llama::Seq)>;
///
/// /// Predicts each byte of a text from those before it, in rows of one text each.
/// struct Texts {
///     seq: usize,
///     vocab: usize,
/// }
///
/// impl Task for Texts {
///     type Model = Llama;
///     type Extra = Ids;
///     type Over = (llama::Batch, llama::Seq);
///     type Flags = ();
///     const NAME: &'static str = "texts";
///
///     fn open(setup: &TaskSetup<'_, LlamaConfig, ()>) -> Result<Texts, String> {
///         Ok(Texts { seq: setup.seq(), vocab: setup.family().vocab })
///     }
///
///     fn streams(&self) -> RowStreams {
///         RowStreams::new().ids("ids", &[self.seq], self.vocab).targets("next", &[self.seq], self.vocab)
///     }
///
///     fn row(&self, example: &Example, _key: u64, row: &mut RowWriter<'_>) -> Result<(), String> {
///         let mut bytes = example.text("text")?.bytes().map(u32::from).peekable();
///         for at in 0..self.seq {
///             row.ids("ids")[at] = bytes.next().unwrap_or(0);
///             row.ids("next")[at] = bytes.peek().copied().unwrap_or(Ids::IGNORED);
///         }
///         Ok(())
///     }
///
///     fn input(&self, rows: &Rows<'_>) -> (Ids, Ids) {
///         (rows.tokens("ids"), rows.tokens("next"))
///     }
///
///     fn loss(&self, model: &Llama, output: &llama::Stream, next: &Ids) -> Loss<Self::Over> {
///         model.loss_of_output(output, next)
///     }
/// }
/// ```
pub trait Task: Sized + Send + Sync + 'static {
    /// The model.
    type Model: FamilyModel;

    /// The data that the loss needs beside the output of the model, such as targets. A pipeline has it on its last
    /// stage.
    type Extra: SegmentData;

    /// The dims that the loss averages over, as declared: those of its targets.
    type Over: Dims;

    /// Flags of the task on the command line; `()` if there are none. They are no keys of `--config` files.
    type Flags: clap::Args + Send + Sync + 'static;

    /// The name in messages and checkpoints: a run is refused to resume with another task.
    const NAME: &'static str;

    /// Sets what the flags decide in the configuration of the model, such as its labels.
    ///
    /// # Errors
    /// Flags that are out of range, in a message that begins with the flag.
    fn configure(
        family: &mut <Self::Model as FamilyModel>::Config,
        flags: &Self::Flags,
    ) -> std::result::Result<(), String> {
        let _ = (family, flags);
        Ok(())
    }

    /// Creates the task of a run.
    ///
    /// # Errors
    /// Settings and sizes that do not fit the task, in a message that begins with the flag.
    fn open(
        setup: &TaskSetup<'_, <Self::Model as FamilyModel>::Config, Self::Flags>,
    ) -> std::result::Result<Self, String>;

    /// Returns the streams of each row.
    fn streams(&self) -> RowStreams;

    /// Writes the row of an example. It follows from the example and `key` alone, which differs by seed, epoch and
    /// example: random choices are drawn by it, so that they are the same on every mesh and after a restart.
    ///
    /// # Errors
    /// An example that is no row: a field that is missing, or a label that is unknown.
    fn row(
        &self,
        example: &Example,
        key: u64,
        row: &mut RowWriter<'_>,
    ) -> std::result::Result<(), String>;

    /// Creates the input of the model from the rows of a micro-batch, and what the loss needs.
    fn input(&self, rows: &Rows<'_>) -> (InputOf<Self>, Self::Extra);

    /// Returns the loss of a micro-batch from the output of the model.
    fn loss(
        &self,
        model: &Self::Model,
        output: &OutputOf<Self>,
        extra: &Self::Extra,
    ) -> Loss<Self::Over>;

    /// Returns how many positions of a row go through the field at `path`, and of an attention the queries and keys:
    /// model FLOPs are counted by them. By default all are `--seq`; an encoder-decoder has others in its encoder.
    fn positions(&self, path: &str, seq: usize) -> [usize; 2] {
        let _ = path;
        [seq; 2]
    }

    /// True if rows are the tokens of files, with the next token as target: of [`NextToken`] only.
    #[doc(hidden)]
    const READS_TOKENS: bool = false;

    /// Creates the input of a micro-batch whose pass is captured as a CUDA graph, if tasks [read
    /// tokens](Self::READS_TOKENS).
    #[doc(hidden)]
    fn capture(_: &InputCapture<'_>) -> Option<CapturedOf<Self>> {
        None
    }

    /// Prepares the sampling of a continuation, if tasks [read tokens](Self::READS_TOKENS).
    #[doc(hidden)]
    fn continuation<'a>(model: ContinuedModel<'a, Self::Model>) -> Option<Continuation<'a>> {
        let _ = model;
        None
    }
}

/// The input of a micro-batch that is captured, with what the loss needs, and the memory that a graph reads it from.
pub type CapturedOf<T> = ((InputOf<T>, <T as Task>::Extra), CapturedInput);

/// The configuration of the family of a task's model.
pub type ConfigOf<T> = <<T as Task>::Model as FamilyModel>::Config;

/// The dim of positions of a task's model.
pub type PositionsOf<T> = <<T as Task>::Model as FamilyModel>::Positions;

/// The input of a task's model.
pub type InputOf<T> = <<T as Task>::Model as Module>::In;

/// The output of a task's model.
pub type OutputOf<T> = <<T as Task>::Model as Layer<InputOf<T>>>::Out;

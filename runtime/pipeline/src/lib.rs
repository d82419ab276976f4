//! Pipeline parallelism: a model is cut into stages, and each rank along `pp` allocates those that it computes.
//!
//! 1. A [`ChainOutline`] describes the fields that a model's `forward` runs one after the other.
//! 2. [`plan_stages`] cuts the chain by a [`StageCut`] into a [`StagePlan`]: which stage runs which fields of the
//!    chain, and which rank computes which stage.
//! 3. [`build_stages`] declares the whole model on every rank, and allocates the FSDP units of the rank's own stages. A
//!    unit that several stages use, because its parameters are tied, is owned by all of them.
//! 4. A [`Pipeline`] runs the steps of the model by a [verified](crate::schedule::verify) schedule: its
//!    [`PipelineExecutor`] exchanges activations and gradients with the ranks of neighboring stages.
//! 5. After backward, [`sum_tied_gradients`] sums the gradients of such units over their owners.

mod boundary;
mod build;
mod chain;
mod cut;
mod executor;
mod model_pipeline;
mod model_stages;
mod partition;
mod plan;
mod plan_stages;
mod rank_stages;
pub mod schedule;
mod split;
mod stage_times;
mod ties;

// The fixture of tests is also one of the trainer.
#[cfg(test)]
extern crate self as meshwright_pipeline;
#[cfg(test)]
mod tests;

pub use build::build_stages;
pub use chain::{ChainOutline, CutPoint, FieldOutline};
pub use cut::{ParseStageCutError, StageCut};
pub use executor::{
    ExecutorError, MessagePart, MessageParts, MessageWait, PipelineExecutor, StageWork,
};
pub use model_pipeline::{Pipeline, PipelineStep};
pub use plan::{StageField, StagePlan, StageRequest, cut_stages};
pub use plan_stages::{plan_declared_stages, plan_stages};
pub use split::split_at_cut_points;
pub use ties::sum_tied_gradients;

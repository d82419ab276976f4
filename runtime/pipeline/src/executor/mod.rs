//! Pipeline parallelism: the stages of a model on several ranks, which exchange activations and gradients.
//!
//! A [`PipelineExecutor`] runs the part of one rank of a [verified](crate::schedule::verify) schedule: it posts
//! receives, runs the computations of a [`StageWork`], and sends their results to the ranks of neighboring stages. It
//! does not depend on models: the data that crosses a boundary between stages is a list of buffers, whose dtypes and
//! lengths are static.
//!
//! ```
//! use std::sync::Arc;
//! use meshwright::backend::{CachingAllocator, Category, DType};
//! use meshwright::comm::launch;
//! use meshwright::pipeline::{MessagePart, PipelineExecutor};
//! use meshwright::schedule::{ScheduleKind, verify};
//!
//! type Error = Box<dyn std::error::Error + Send + Sync>;
//!
//! let (ranks, stages_per_rank, micro_batches) = (2, 1, 4);
//! let schedule = ScheduleKind::OneFOneB.generate(ranks, stages_per_rank, micro_batches)?;
//! let schedule = Arc::new(verify(&schedule).map_err(|findings| format!("{findings:?}"))?);
//! let outputs = launch(&"pp=2".parse()?, |comms| {
//!     let allocator = CachingAllocator::new();
//!     let parts = |_| vec![MessagePart { dtype: DType::F32, len: 1 }];
//!     let executor = PipelineExecutor::new(&comms, &allocator, &schedule)?;
//!     let output = executor.evaluate::<Error>(parts, |stage, input| {
//!         let x = input.first().map_or(1.0, |x| x.typed::<f32>()[0]);
//!         let y = 10.0 * x + stage as f32;
//!         Ok(vec![Arc::new(allocator.copy_of(&[y], Category::Activations))])
//!     })?;
//!     Ok::<_, Error>(output.map(|output| output[0].typed::<f32>()[0]))
//! })?;
//! assert_eq!(outputs, [None, Some(101.0)]);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

mod agreement;
mod error;
mod evaluate;
mod message_wait;
mod messages;
mod run;
mod stage_comm;
mod stage_work;
#[cfg(test)]
mod tests;

pub use agreement::MessageParts;
pub use error::ExecutorError;
pub use message_wait::MessageWait;
pub use run::PipelineExecutor;
pub use stage_work::{MessagePart, StageWork};

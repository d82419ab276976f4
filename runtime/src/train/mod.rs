//! Training: settings, the trainer, metrics and progress.

mod auto_batch;
mod auto_mesh;
pub mod config;
pub(crate) mod console;
mod continuation;
mod cuda_graphs;
mod error;
mod evaluation;
pub(crate) mod explain;
mod families;
mod flight;
mod hub;
mod machine;
mod micro_batch;
mod own_loop;
mod page;
mod pipeline_step;
mod plan;
mod planner;
mod preflight;
mod record;
mod report;
mod run;
mod run_on;
mod run_optimizer;
mod simulate;
mod step;
mod task;
mod task_programs;
mod trainer;

pub use crate::state_dict::{HfName, TrainingState, TrainingStateMut, import_hf};
pub use config::{Config, ConfigError, Decay, LrSchedule};
pub use config::{OptimizerEntry, OptimizerFlags, Optimizers};
pub use error::{Error, Result};
pub use families::train_family_of;
#[cfg(feature = "cuda")]
pub use machine::Gpus;
#[doc(hidden)]
pub use machine::open_machine;
pub use machine::{Machine, MachineDevice};
pub use meshwright_store::family::{
    ConfigKeys, Family, FamilyList, FamilyModel, LanguageModel, LoadBalancing, Outline, SizeFlag,
    WithFamily,
};
pub use own_loop::{LoadedState, LoopCheckpoints, StepNumbers, StepReports};
#[doc(hidden)]
pub use page::{PageDocument, is_page, page_paragraph, page_table};
pub use report::{
    AxisUse, Evaluation, KnownSteps, MemoryUse, MetricsError, MetricsFile, PeakFlops, Prediction,
    Report, StepMetrics, StepObserver, StepReport, Summary,
};
pub use run_on::run_on;
#[doc(hidden)]
pub use run_on::run_on_machine;
pub(crate) use run_on::run_on_shape;
pub use simulate::{LinkUse, SimulatedRun, WholeRun};
#[doc(hidden)]
pub use task::task_entry;
pub use task::{NextToken, Rows, Task, TaskList, TaskSetup, WithTask};
pub use task_programs::train_task_of;
pub use trainer::{TaskTrainer, Trainer};

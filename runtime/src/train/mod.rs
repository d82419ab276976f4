//! Training: settings, the trainer, metrics and progress.

pub mod config;
mod console;
mod cuda_graphs;
mod error;
mod family;
mod machine;
mod plan;
mod report;
mod run;
mod run_on;
mod trained;
mod trainer;
mod weights;

pub use config::{Config, ConfigError, Decay, LrSchedule};
pub use error::{Error, Result};
pub use family::{Family, HfName, LanguageModel, Outline};
#[cfg(feature = "cuda")]
pub use machine::Gpus;
pub use machine::Machine;
pub use report::{
    AxisUse, MemoryUse, MetricsError, MetricsFile, Progress, Report, StepMetrics, Summary,
};
pub use run_on::run_on;
pub use trainer::Trainer;
pub use weights::import_hf;

//! Training: settings, the trainer, metrics and progress.

mod batch_check;
pub mod config;
mod error;
mod family;
mod flops;
mod graphs;
mod language_model;
mod lr;
mod machine;
mod memory;
mod metrics;
mod plan;
mod progress;
mod rank_loop;
mod recorder;
mod report;
mod resume;
mod run_on;
mod sample;
mod saving;
mod summary;
mod text;
mod trained;
mod trainer;
mod weights;

pub use config::{Config, ConfigError, OptimizerEntry, OptimizerFlags, Optimizers};
pub use error::{Error, Result};
pub use family::{Family, Outline};
pub use language_model::{HfName, LanguageModel};
pub use lr::{Decay, LrSchedule};
#[cfg(feature = "cuda")]
pub use machine::Gpus;
pub use machine::Machine;
pub use metrics::{MetricsError, MetricsFile, StepMetrics};
pub use progress::Progress;
pub use report::{AxisUse, MemoryUse, Report};
pub use run_on::run_on;
pub use summary::Summary;
pub use trainer::Trainer;
pub use weights::import_hf;

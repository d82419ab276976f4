//! Training: settings, learning rate, metrics and progress.

pub mod config;
mod lr;
mod metrics;
mod progress;

pub use config::{Config, ConfigError};
pub use lr::{Decay, LrSchedule};
pub use metrics::{MetricsError, MetricsFile, StepMetrics};
pub use progress::Progress;

//! Reports of a run: progress, metrics per step, resource usage and the final summary.

mod attention_balance;
mod evaluation;
mod flops;
mod metrics;
mod metrics_lines;
mod metrics_recorder;
mod observer;
mod own_metrics;
mod peak;
mod progress;
mod source_losses;
mod step_history;
mod step_usage;
mod summary;
mod usage;

pub use attention_balance::AttentionBalance;
pub use evaluation::Evaluation;
pub use metrics::{ClaimedMetrics, MetricsError, MetricsFile, StepMetrics};
pub use metrics_lines::KnownSteps;
pub use metrics_recorder::MetricsRecorder;
pub use observer::{StepObserver, StepReport};
pub use own_metrics::OwnMetrics;
pub use peak::PeakFlops;
pub use progress::Progress;
pub use source_losses::SourceLosses;
pub use step_history::StepHistory;
pub use step_usage::{StepUsage, UsageStart};
pub use summary::{Summary, output_lines};
pub use usage::{AxisUse, MemoryUse, Report, memory_use};

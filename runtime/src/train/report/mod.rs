//! Reports of a run: progress, metrics per step, resource usage and the final summary.

mod attention_balance;
mod evaluation;
mod event_files;
mod event_records;
mod flops;
mod metrics;
mod metrics_files;
mod metrics_lines;
mod metrics_recorder;
mod observer;
mod own_metrics;
mod peak;
mod progress;
mod report_file;
mod source_losses;
mod step_history;
mod step_usage;
mod summary;
mod usage;

pub use attention_balance::AttentionBalance;
pub use evaluation::Evaluation;
pub use event_files::{ClaimedEvents, is_name_of_events};
pub use metrics::{ClaimedMetrics, MetricsFile, StepMetrics};
pub use metrics_files::MetricsFiles;
pub use metrics_lines::KnownSteps;
pub use metrics_recorder::MetricsRecorder;
pub use observer::{StepObserver, StepReport};
pub use own_metrics::OwnMetrics;
pub use peak::PeakFlops;
pub use progress::Progress;
pub use report_file::MetricsError;
pub use source_losses::SourceLosses;
pub use step_history::StepHistory;
pub use step_usage::{StepUsage, UsageStart};
pub use summary::{Summary, output_lines};
pub use usage::{AxisUse, MemoryUse, Report, memory_use};

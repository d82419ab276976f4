//! Reports of a run: progress, metrics per step, resource usage and the final summary.

mod attention_balance;
mod flops;
mod metrics;
mod metrics_recorder;
mod progress;
mod summary;
mod usage;

pub use attention_balance::{AttentionBalance, AttentionWork};
pub use metrics::{ClaimedMetrics, MetricsError, MetricsFile, StepMetrics};
pub use metrics_recorder::MetricsRecorder;

pub use progress::Progress;
pub use summary::{Summary, output_lines};
pub use usage::{AxisUse, MemoryUse, Report, UsageTotals, memory_use};

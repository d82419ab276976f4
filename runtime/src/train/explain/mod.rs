//! The work of a training step, from a dry run: its collectives, its computation, and the peak of its memory.

mod calls;
mod columns;
mod explanation;
mod json;
mod kernels;
mod layer_field;
mod memory_over_time;
mod peak;
mod rows;
mod table;
mod text;

pub use columns::{aligned, bytes_cell, bytes_text, flops_cell, flops_text};
pub use explanation::{ExplainedPosition, Explanation};
pub use json::{json_of, of_peak, pass_name};
pub use kernels::KernelRow;
pub use memory_over_time::MemoryOverTime;
pub use peak::StepPeak;
pub use rows::CollectiveRow;
pub use text::text_of;

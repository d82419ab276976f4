//! The work of a training step, from a dry run: its collectives, its computation, and the peak of its memory.

mod calls;
mod columns;
mod explanation;
mod json;
mod kernels;
mod layer_field;
mod peak;
mod rows;
mod table;
mod text;

pub use columns::{aligned, bytes_text, flops_text};
pub use explanation::{ExplainedPosition, Explanation};
pub use json::json_of;
pub use kernels::KernelRow;
pub use rows::CollectiveRow;
pub use text::text_of;

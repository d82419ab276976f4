//! Clusters: their GPUs, and the levels of their interconnect.

mod figure;
mod gpu;
mod level;

use std::sync::Arc;

pub use figure::{Figure, Trust};
pub use gpu::{AttentionCurve, Gpu, MatmulCurve, PassRates};
pub use level::Level;

/// A cluster of GPUs of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// The name of the command line: `h100-dgx`.
    pub name: String,
    /// A line about it.
    pub description: String,
    /// Its GPUs.
    pub gpu: Arc<Gpu>,
    /// Levels of its interconnect, the innermost first: each holds whole groups of the one before.
    pub levels: Vec<Level>,
    /// GPUs of the cluster; `None` if it has any number.
    pub gpus: Option<usize>,
}
